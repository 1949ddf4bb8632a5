"""torchtitan's job files, new layout and old ones."""

from pathlib import Path

import pytest

from zerocalc.errors import SpecError
from zerocalc.readers.torchtitan import read_torchtitan, torchtitan_reading
from zerocalc.readers.torchtitan_keys import MODELS

CONFIGS = Path(__file__).parents[1] / "data" / "configs"
PRESETS = Path(__file__).parents[2] / "presets" / "models"


def read(gpus=None, **config):
    return torchtitan_reading(config, "train.toml", gpus=gpus)


def plain(given):
    return {name: value.value for name, value in given.items()}


def test_the_new_layout():
    path = CONFIGS / "torchtitan_new.toml"
    reading = read_torchtitan(path)
    assert plain(reading.values) == {
        "framework": "pytorch", "strategy": "hsdp", "model": "llama-3-8b", "tp": 4, "pp": 1, "cp": 2, "ep": 8, "gpus": 128,
        "dp": 16, "shard_size": 16, "micro_batch": 2, "seq_len": 8192, "grad_accum": 4, "precision": "mixed-bf16",
        "reduce_dtype": "fp32", "checkpointing": "selective", "optimizer": "adamw",
        "offload_params": "none", "offload_optimizer": "none",
    }  # fmt: skip
    assert plain(reading.settings) == {
        "wrap": "torchtitan", "param_dtype": "bf16", "reduce_dtype": "fp32", "foreach": True, "fused": False,
        "selective_policy": "matmuls",
    }  # fmt: skip
    assert plain(reading.totals) == {"global_batch": 128, "replicas": 2}
    assert reading.values["micro_batch"].origin == f"file:{path}:training.local_batch_size"
    assert len(reading.warnings) == 1
    assert "quantize.linear.float8.enable_fsdp_float8_all_gather moves bytes" in reading.warnings[0]


def test_the_oldest_layout():
    reading = read_torchtitan(CONFIGS / "torchtitan_oldest.toml", gpus=64)
    assert plain(reading.values) == {
        "framework": "pytorch", "strategy": "zero2", "model": "llama-2-70b", "tp": 8, "pp": 2, "dp": 4, "micro_batch": 4,
        "grad_accum": 2, "seq_len": 4096, "precision": "mixed-bf16", "reduce_dtype": "fp32", "checkpointing": "full", "optimizer": "adamw",
    }  # fmt: skip
    assert reading.warnings == []


@pytest.mark.parametrize("home", ["parallelism", "experimental", "training"])
@pytest.mark.parametrize(
    ("key", "word"),
    [("pipeline_parallel_degree", "pp"), ("context_parallel_degree", "cp"), ("tensor_parallel_degree", "tp"),
     ("expert_parallel_degree", "ep"), ("expert_tensor_parallel_degree", "etp")],
)  # fmt: skip
def test_degrees_in_each_home(home, key, word):
    reading = read(**{home: {key: 2}})
    assert reading.value(word) == 2
    assert reading.values[word].origin == f"file:train.toml:{home}.{key}"


@pytest.mark.parametrize(
    ("degrees", "gpus", "expected"),
    [
        ({}, None, {"strategy": "zero3", "gpus": None, "dp": None}),
        ({"data_parallel_shard_degree": -1}, 16, {"strategy": "zero3", "dp": 16}),
        ({"data_parallel_shard_degree": 8}, None, {"strategy": "zero3", "gpus": 8, "dp": 8}),
        ({"data_parallel_shard_degree": 1}, None, {"strategy": "ddp", "gpus": 1, "dp": 1}),
        ({"data_parallel_shard_degree": 1, "data_parallel_replicate_degree": 8}, None, {"strategy": "ddp", "dp": 8}),
        ({"data_parallel_shard_degree": 4, "data_parallel_replicate_degree": 2}, None,
         {"strategy": "hsdp", "shard_size": 4, "gpus": 8}),
        ({"data_parallel_shard_degree": -1, "data_parallel_replicate_degree": 2}, 32,
         {"strategy": "hsdp", "shard_size": 16, "dp": 32}),
        ({"data_parallel_shard_degree": -1, "data_parallel_replicate_degree": 2}, None,
         {"strategy": "hsdp", "shard_size": None}),
        ({"data_parallel_shard_degree": 1, "context_parallel_degree": 4}, None, {"strategy": "zero3", "gpus": 4, "dp": 1}),
    ],
)  # fmt: skip
def test_the_mesh(degrees, gpus, expected):
    reading = read(gpus=gpus, parallelism=degrees)
    assert {name: reading.value(name) for name in expected} == expected


def test_degrees_that_do_not_fit_the_gpus():
    assert any(
        "need 8 GPUs, not 6" in text
        for text in read(6, parallelism={"data_parallel_shard_degree": 8}).warnings
    )
    assert any(
        "not a multiple" in text for text in read(6, parallelism={"tensor_parallel_degree": 4}).warnings
    )
    with pytest.raises(SpecError, match="tensor_parallel_degree: must be at least 1 or -1"):
        read(parallelism={"tensor_parallel_degree": 0})


@pytest.mark.parametrize(
    ("policy", "pp", "strategy", "reshard"),
    [("default", 1, "zero3", None), ("default", 2, "zero2", None), ("always", 2, "zero3", True), ("never", 1, "zero2", None),
     ("true", 1, "zero3", True), (True, 1, "zero3", True)],
)  # fmt: skip
def test_reshard_policies(policy, pp, strategy, reshard):
    reading = read(parallelism={"fsdp_reshard_after_forward": policy, "pipeline_parallel_degree": pp})
    assert reading.value("strategy") == strategy
    given = reading.settings.get("reshard_after_forward")
    assert (given.value if given else None) == reshard


@pytest.mark.parametrize(
    ("training", "parallelism", "precision", "reduce"),
    [
        ({}, {}, "mixed-bf16", "fp32"),
        ({"dtype": "bfloat16"}, {}, "bf16-pure", "fp32"),
        ({"mixed_precision_param": "float32"}, {}, "fp32", "fp32"),
        ({"mixed_precision_reduce": "bfloat16"}, {}, "mixed-bf16", "bf16"),
        ({}, {"data_parallel_shard_degree": 1}, "fp32", None),
        ({}, {"data_parallel_shard_degree": 1, "tensor_parallel_degree": 8}, "fp32", None),
    ],
)
def test_precision(training, parallelism, precision, reduce):
    reading = read(training=training, parallelism=parallelism)
    assert (reading.value("precision"), reading.value("reduce_dtype")) == (precision, reduce)
    alone = parallelism == {"data_parallel_shard_degree": 1}
    assert ("autocast" in reading.settings) == alone


def test_batches():
    config = {
        "training": {"batch_size": 4, "global_batch_size": 64},
        "parallelism": {"data_parallel_shard_degree": 8},
    }
    assert read(**config).value("grad_accum") == 2
    config["training"]["global_batch_size"] = 60
    assert any("torchtitan refuses this" in text for text in read(**config).warnings)
    assert read(training={"local_batch_size": 1, "global_batch_size": -1}).totals == {}
    assert read(training={"gradient_accumulation_steps": 3}).value("grad_accum") == 3


def test_cpu_offload():
    on = {"enable_cpu_offload": True}
    assert read(training=on).value("offload_optimizer") == "cpu"
    alone = read(training=on, parallelism={"data_parallel_shard_degree": 1})
    assert "offload_params" not in alone.values
    assert any("no effect without FSDP" in text for text in alone.warnings)


@pytest.mark.parametrize(
    ("section", "checkpointing"),
    [({"mode": "none"}, "none"), ({"mode": "full"}, "full"), ({"mode": "selective", "selective_ac_option": "2"}, "selective"),
     ({"mode": "memory_budget"}, None), ({}, "selective")],
)  # fmt: skip
def test_activation_checkpointing(section, checkpointing):
    assert read(activation_checkpoint=section).value("checkpointing") == checkpointing


@pytest.mark.parametrize(
    ("section", "settings"),
    [({"mode": "selective", "selective_ac_option": "op"}, {"selective_policy": "matmuls"}),
     ({"mode": "selective", "selective_ac_option": 1}, {"selective_policy": "layers", "selective_every": 1}),
     ({"mode": "selective", "selective_ac_option": "2"}, {"selective_policy": "layers", "selective_every": 2}),
     ({}, {"selective_policy": "layers", "selective_every": 2}), ({"mode": "full", "selective_ac_option": "op"}, {})],
)  # fmt: skip
def test_what_selective_checkpointing_computes_again(section, settings):
    read_settings = plain(read(activation_checkpoint=section).settings)
    assert {name: value for name, value in read_settings.items() if name.startswith("selective")} == settings


@pytest.mark.parametrize(
    ("training", "parallelism", "micro", "accum"),
    [
        ({"local_batch_size": 8}, {}, 1, 8),
        ({"local_batch_size": 8}, {"pipeline_parallel_microbatch_size": 2}, 2, 4),
        ({"batch_size": 8}, {}, 2, 4),
        ({"batch_size": 8}, {"pipeline_parallel_microbatches": 8}, 1, 8),
        ({"local_batch_size": 8, "global_batch_size": 32}, {"data_parallel_shard_degree": 2}, 1, 16),
    ],
)
def test_micro_batches_of_a_pipeline(training, parallelism, micro, accum):
    """The local batch passes in micro-batches; FSDP reduces after the last one and keeps its parameters till then."""
    reading = read(training=training, parallelism={"pipeline_parallel_degree": 4, **parallelism})
    assert (reading.value("micro_batch"), reading.value("grad_accum")) == (micro, accum)
    synchronised = [
        reading.settings[name].value for name in ("requires_gradient_sync", "reshard_after_backward")
    ]
    assert synchronised == [False, False]


def test_a_local_batch_that_does_not_divide_and_a_schedule_that_is_not_modelled():
    reading = read(
        training={"local_batch_size": 8},
        parallelism={
            "pipeline_parallel_degree": 2,
            "pipeline_parallel_microbatch_size": 3,
            "pipeline_parallel_schedule": "Interleaved1F1B",
        },
    )
    assert (reading.value("micro_batch"), reading.value("grad_accum")) == (8, None)
    assert [
        word in text for word, text in zip(("Interleaved1F1B", "refuses"), reading.warnings, strict=True)
    ] == [True] * 2


@pytest.mark.parametrize(
    ("home", "converters", "says"),
    [("float8", ["float8"], "moves bytes"), ("float8", "float8", "moves bytes"), ("float8", [], "no effect"),
     ("quantize.linear.float8", ["quantize.linear.float8"], "moves bytes"), ("quantize.dense.float8", [], "no effect"),
     ("quantize.float8.dense", ["quantize.float8.dense"], "moves bytes"), ("quantize.linear.fp8", [], "no effect")],
)  # fmt: skip
def test_float8_in_each_home(home, converters, says):
    leaf = {"enable_fsdp_float8_all_gather": True, "filter_fqns": "output,router.gate"}
    for name in reversed(home.split(".")):
        leaf = {name: leaf}
    warnings = read(model={"converters": converters}, **leaf).warnings
    assert len(warnings) == 1
    assert home in warnings[0]
    assert says in warnings[0]


@pytest.mark.parametrize(
    ("name", "flavor", "model"),
    [("llama3", "8B", "llama-3-8b"), ("llama3", "8B_flex", "llama-3-8b"), ("llama3", "405B", "llama-3.1-405b"),
     ("llama", "7B", "llama-2-7b"), ("deepseek_v3", "671B", "deepseek-v3"), ("deepseek_v3", "671B_lora", "deepseek-v3"),
     ("qwen3", "30B-A3B-deepep", "qwen3-30b-a3b"), ("gpt_oss", "20b", "gpt-oss-20b"),
     ("Qwen/Qwen3-4B", "debugmodel", "Qwen/Qwen3-4B"), ("llama3", "debugmodel", None), ("flux", "flux-dev", None)],
)  # fmt: skip
def test_models_by_flavor(name, flavor, model):
    reading = read(model={"name": name, "flavor": flavor})
    assert reading.value("model") == model
    assert (model is None) == any("not known by its shape" in text for text in reading.warnings)


def test_every_mapped_model_is_a_preset():
    mapped = {preset for flavors in MODELS.values() for preset in flavors.values()}
    known = {path.stem for path in PRESETS.glob("*.json")}
    assert mapped <= known


def test_optimizers():
    assert read(optimizer={"name": "Adam", "fused": True}).settings["fused"].value is True
    unknown = read(optimizer={"name": "Dion", "lr": 1e-3, "state_dtype": "bfloat16"})
    assert "optimizer" not in unknown.values
    assert len(unknown.warnings) == 2


def test_lora():
    assert read(model={"converters": ["lora"]}, lora={"rank": 8, "alpha": 16.0}).value("lora_rank") == 8
    idle = read(lora={"rank": 8})
    assert "lora_rank" not in idle.values
    assert any("no effect" in text for text in idle.warnings)


def test_unknown_sections_and_keys_are_named():
    reading = read(deepep={"x": 1}, training={"sequence_len": 1}, parallelism={"tensor_parallel_degre": 2})
    assert len(reading.warnings) == 1
    for name in (
        "deepep",
        "training.sequence_len",
        "tensor_parallel_degre (did you mean parallelism.tensor_parallel_degree?)",
    ):
        assert name in reading.warnings[0]


def test_an_idle_section_is_no_warning():
    config = {
        "job": {"x": 1},
        "metrics": {"log_freq": 1},
        "checkpoint": {"enable": True},
        "validation": {"freq": 5},
    }
    assert read(**config).warnings == []
