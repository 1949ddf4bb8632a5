"""DeepSpeed files: every spelling that real files use, and what each key does to bytes."""

import json
from pathlib import Path

import pytest

from zerocalc.errors import FileError, SpecError
from zerocalc.readers.batch import batch_triangle
from zerocalc.readers.deepspeed import deepspeed_reading, read_deepspeed, resolve_auto
from zerocalc.readers.deepspeed_keys import KEYS
from zerocalc.readers.reading import Given

CONFIGS = Path(__file__).parents[1] / "data" / "configs"


def read(**config):
    return deepspeed_reading(config, "ds.json")


def zero(**keys):
    return read(zero_optimization=keys)


def plain(given):
    return {name: value.value for name, value in given.items()}


def test_a_whole_file_with_comments_and_bare_words():
    path = CONFIGS / "ds_zero3_offload.json"
    reading = read_deepspeed(path, dp=16)
    assert plain(reading.values) == {
        "framework": "deepspeed", "strategy": "zero3", "precision": "mixed-bf16", "optimizer": "adamw",
        "offload_optimizer": "cpu", "offload_params": "nvme", "micro_batch": 4, "grad_accum": 8, "dp": 16,
    }  # fmt: skip
    assert plain(reading.settings) == {
        "overlap_comm": True, "contiguous_gradients": True, "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto",
        "stage3_max_live_parameters": 10**9, "sub_group_size": 10**9, "offload_optimizer.ratio": 0.3,
        "offload_optimizer.pin_memory": True, "offload_param.buffer_count": 6,
        "optimizer_class": "deepspeedcpuadam",  # what DeepSpeed makes of AdamW under offload
    }  # fmt: skip
    assert plain(reading.totals) == {"global_batch": 512}
    assert reading.values["strategy"].origin == f"file:{path}:zero_optimization.stage"
    assert (
        reading.settings["offload_optimizer.ratio"].origin
        == f"file:{path}:zero_optimization.offload_optimizer.ratio"
    )
    assert reading.warnings == []


@pytest.mark.parametrize(
    ("stage", "strategy"),
    [(0, "ddp"), (1, "zero1"), (2, "zero2"), (3, "zero3"), ("1", "zero1"), ("3", "zero3"), (True, "zero1"),
     (False, "ddp"), ("true", "zero1"), (2.0, "zero2"), ([2], "zero2")],
)  # fmt: skip
def test_stage_in_every_type(stage, strategy):
    assert zero(stage=stage).value("strategy") == strategy


@pytest.mark.parametrize(
    ("given", "strategy"), [(True, "zero1"), (False, "ddp"), (1, "zero1"), (2, "zero2"), ("3", "zero3")]
)
def test_zero_optimization_as_a_switch_or_number(given, strategy):
    reading = read(zero_optimization=given, allgather_size=200_000)
    assert reading.value("strategy") == strategy
    assert ("allgather_bucket_size" in reading.settings) == (given is True)


@pytest.mark.parametrize("stage", ["ZERO_STAGE", "${zero_stage},", "<stage>", [0, 1, 2, 3], "auto"])
def test_a_stage_that_is_no_number_yet(stage):
    reading = zero(stage=stage)
    assert "strategy" not in reading.values
    assert any("--strategy" in text for text in reading.assumptions)
    assert stage == "auto" or any("zero_optimization.stage" in text for text in reading.warnings)


@pytest.mark.parametrize("stage", [4, -1, 1.5, "three", {"a": 1}])
def test_a_stage_that_cannot_be(stage):
    with pytest.raises(SpecError, match=r"ds\.json: zero_optimization\.stage"):
        zero(stage=stage)


def test_no_stage_is_stage_0_by_default():
    reading = read()
    assert reading.value("strategy") == "ddp"
    assert reading.values["strategy"].origin.startswith("default:deepspeed")


@pytest.mark.parametrize(
    ("keys", "values"),
    [
        ({"mics_shard_size": 64}, {"strategy": "mics", "shard_size": 64}),
        ({"mics_shard_size": -1}, {"strategy": "zero3"}),
        ({"zero_hpz_partition_size": 8}, {"strategy": "zeropp"}),
        ({"zero_hpz_partition_size": 1}, {"strategy": "zero3"}),
        ({"zero_quantized_weights": True}, {"strategy": "zeropp"}),
        ({"zero_quantized_gradients": True}, {"strategy": "zeropp"}),
        ({"zero_quantized_gradients": False}, {"strategy": "zero3"}),
    ],
)
def test_groups_of_stage_3(keys, values):
    reading = zero(stage=3, **keys)
    assert {name: reading.value(name) for name in values} == values


@pytest.mark.parametrize("value", [5e8, 500_000_000, "500000000", "5e8", [5e8], "500_000_000"])
def test_sizes_in_every_type(value):
    assert zero(stage=1, reduce_bucket_size=value).settings["reduce_bucket_size"].value == 500_000_000


def test_a_bare_word_keeps_its_comma(tmp_path):
    path = tmp_path / "ds.json"
    path.write_text("{\n  zero_optimization: {\n    stage: 1,\n    contiguous_gradients: True,\n  }\n}")
    reading = read_deepspeed(path)
    assert reading.value("strategy") == "zero1"
    assert reading.settings["contiguous_gradients"].value is True
    assert any("comma" in text for text in reading.warnings)


@pytest.mark.parametrize("value", ["many", -1, 1.5, True, 2**63, "1e400"])
def test_sizes_that_cannot_be(value):
    with pytest.raises(SpecError, match="reduce_bucket_size"):
        zero(stage=1, reduce_bucket_size=value)


@pytest.mark.parametrize(("alias", "name"), [
    ("prefetch_bucket_size", "stage3_prefetch_bucket_size"), ("max_live_parameters", "stage3_max_live_parameters"),
    ("max_reuse_distance", "stage3_max_reuse_distance"),
    ("param_persistence_threshold", "stage3_param_persistence_threshold"),
])  # fmt: skip
def test_names_without_prefix(alias, name):
    reading = zero(stage=3, **{alias: 7})
    assert reading.settings[name].value == 7
    assert reading.settings[name].origin.endswith(alias)
    both = zero(stage=3, **{name: 8, alias: 7})
    assert both.settings[name].value == 8


@pytest.mark.parametrize(
    ("config", "precision"),
    [
        ({"bf16": {"enabled": True}}, "mixed-bf16"),
        ({"bf16": {"enabled": "true"}}, "mixed-bf16"),
        ({"bfloat16": {"enabled": True}}, "mixed-bf16"),
        ({"bfloat16": {"enabled": True}, "bf16": {"enabled": False}}, "fp32"),
        ({"fp16": {"enabled": True}}, "mixed-fp16"),
        ({"fp16": {"enabled": "False"}}, "fp32"),
        ({}, "fp32"),
        ({"fp16": {"enabled": "auto"}, "bf16": {"enabled": True}}, "mixed-bf16"),
        ({"bf16": {"enabled": True, "bf16_master_weights_and_grads": True}}, "bf16-master"),
        (
            {"bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}},
            "bf16-master-states",
        ),
    ],
)
def test_precision(config, precision):
    assert read(**config).value("precision") == precision


@pytest.mark.parametrize("value", ["auto", "CONFIG_FP16_ENABLED,"])
def test_a_precision_left_to_the_launcher(value):
    reading = read(fp16={"enabled": value}, bf16={"enabled": False})
    assert "precision" not in reading.values
    assert any("fp16.enabled" in text and "--precision" in text for text in reading.assumptions)


@pytest.mark.parametrize(
    "config", [{"zero_optimization": [1]}, {"zero_optimization": {"offload_param": "cpu"}}, {"fp16": True}]
)
def test_a_plain_value_where_deepspeed_needs_a_section_is_refused(config):
    with pytest.raises(SpecError, match="must be a section of keys"):
        read(**config)


def test_what_leaves_a_section_empty_is_named():
    assert any("bf16: must be a section of keys" in text for text in read(bf16=[]).warnings)


def test_a_models_config_is_no_deepspeed_file(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "llama", "hidden_size": 4096}')
    with pytest.raises(SpecError, match="no DeepSpeed configuration: none of its keys is one"):
        read_deepspeed(path)
    path.write_text('{"steps_per_print": 10}')
    assert read_deepspeed(path).value("strategy") == "ddp"


def test_both_precisions_is_what_deepspeed_refuses():
    reading = read(fp16={"enabled": True}, bf16={"enabled": True})
    assert reading.value("precision") == "mixed-fp16"
    assert any("refuses" in text for text in reading.warnings)


@pytest.mark.parametrize(
    ("text", "dtype"),
    [("bf16", "bf16"), ("bfp16", "bf16"), ("fp32", "fp32"), ("torch.float16", "fp16"), (None, None)],
)
def test_dtypes_of_gradients(text, dtype):
    reading = read(communication_data_type=text, data_types={"grad_accum_dtype": text})
    assert reading.value("reduce_dtype") == reading.value("grad_dtype") == dtype
    assert (dtype is None) == ("communication_data_type" not in reading.settings)


@pytest.mark.parametrize(
    ("stage", "keys", "optimizer", "params"),
    [
        (2, {"offload_optimizer": {"device": "cpu"}}, "cpu", None),
        (3, {"offload_optimizer": {"device": "nvme"}, "offload_param": {"device": "cpu"}}, "nvme", "cpu"),
        (3, {"offload_optimizer": {"device": "None"}, "offload_param": {"device": "none"}}, "none", "none"),
        (3, {"offload_optimizer": None}, None, None),
        (2, {"cpu_offload": True}, "cpu", None),
        (2, {"cpu_offload": False}, None, None),
        (3, {"cpu_offload": True, "cpu_offload_params": True}, "cpu", "cpu"),
        (3, {"cpu_offload_param": True}, None, "cpu"),
        (3, {"cpu_offload": True, "offload_optimizer": {"device": "none"}}, "none", None),
    ],
)
def test_offload_old_and_new(stage, keys, optimizer, params):
    reading = zero(stage=stage, **keys)
    assert reading.value("offload_optimizer") == optimizer
    assert reading.value("offload_params") == params
    assert reading.warnings == []


@pytest.mark.parametrize(
    ("stage", "section", "to"),
    [(2, "offload_param", "offload_params"), (0, "offload_optimizer", "offload_optimizer")],
)
def test_offload_that_the_stage_does_not_do(stage, section, to):
    reading = zero(stage=stage, **{section: {"device": "cpu", "pin_memory": True}})
    assert reading.value(to) == "none"
    assert reading.settings == {}
    assert any(section in text and "no effect" in text for text in reading.warnings)


def test_an_undefined_device():
    reading = zero(stage=3, offload_optimizer={"device": "auto"})
    assert reading.value("offload_optimizer") == "none"
    assert any("auto" in text for text in reading.warnings)
    with pytest.raises(SpecError, match="one of none, cpu, nvme"):
        zero(stage=3, offload_optimizer={"device": "disk"})


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"offload_optimizer": {"device": "cpu"}}, "it belongs at zero_optimization.offload_optimizer"),
        ({"round_robin_gradients": True}, "it belongs at zero_optimization.round_robin_gradients"),
        ({"bf16": {"enable": True}}, "unknown keys, not read: bf16.enable (did you mean bf16.enabled?)"),
        ({"bp16": {"enabled": True}}, "bp16 (did you mean "),
        ({"zero_optimization": {"comm_overlap": True}}, "did you mean zero_optimization.overlap_comm?"),
        (
            {"micro_batch_size_per_gpu": "auto"},
            "micro_batch_size_per_gpu (did you mean train_micro_batch_size_per_gpu?)",
        ),
        ({"num_gpus": 8, "_comment": "x", "max_grad_norm": 1.0}, "num_gpus, _comment, max_grad_norm"),
    ],
)
def test_keys_without_effect_are_named(config, says):
    assert any(says in text for text in read(**config).warnings), read(**config).warnings


@pytest.mark.parametrize(
    "config",
    [
        {"zero_optimization": {"stage": 3, "zenflow": {"topk_ratio": 0.1}}},
        {"zero_optimization": {"stage": 3, "mics_hierarchical_params_gather": True}},
        {"amp": {"enabled": True}},
        {"sparse_gradients": True},
        {"sparse_attention": {"mode": "fixed"}},
        {"curriculum_learning": {"enabled": True}},
        {"compression_training": {"weight_quantization": {}}},
        {"activation_checkpointing": {"contiguous_memory_optimization": True}},
        {"seq_parallel_communication_data_type": "bf16"},
        {"elasticity": {"enabled": True}},
    ],
)
def test_what_moves_bytes_unmodelled_warns(config):
    warnings = read(**config).warnings
    assert len([text for text in warnings if "moves bytes but is not modelled" in text]) == 1, warnings


@pytest.mark.parametrize(
    "config",
    [
        {"amp": {"enabled": False}}, {"curriculum_learning": {"enabled": False}}, {"sparse_gradients": False},
        {"zero_optimization": {"stage": 1, "legacy_stage1": False}}, {"gradient_clipping": True},
        {"steps_per_print": 20_000_000_000_000_000}, {"autotuning": {"enabled": True, "num_gpus": [1, 2]}},
        {"zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": "auto"}},
        {"zero_optimization": {"stage": 2, "gather_16bit_weights_on_model_save": True}},
        {"fp16": {"enabled": False, "initial_scale_power": -3}}, {"scheduler": {"type": "WarmupLR"}},
    ],
)  # fmt: skip
def test_what_moves_no_bytes_is_silent(config):
    assert read(**config).warnings == []


def test_stage_3_settings_in_a_lower_stage():
    reading = zero(stage=2, stage3_max_live_parameters=5, reduce_bucket_size=6)
    assert plain(reading.settings) == {"reduce_bucket_size": 6}
    assert any(
        "without effect below stage 3: stage3_max_live_parameters" in text for text in reading.warnings
    )


@pytest.mark.parametrize(
    ("name", "params", "optimizer"),
    [("AdamW", {}, "adamw"), ("Adam", {"torch_adam": True}, "adam"), ("SGD", {}, "sgd"),
     ("sgd", {"momentum": 0.9}, "sgd-momentum"), ("DeepSpeedCPUAdam", {}, "adamw"), ("OneBitAdam", {}, "adam"),
     ("OnebitAdam", {}, "adam"), ("ZeroOneAdam", {}, "adam"), ("Lamb", {}, "adam"), ("OneBitLamb", {}, "adam"),
     ("sat.ops.FusedEmaAdam", {}, None), ("auto", {}, None), ("Muon", {}, "muon")],
)  # fmt: skip
def test_optimizers(name, params, optimizer):
    reading = read(optimizer={"type": name, "params": {"lr": "auto", **params}})
    assert reading.value("optimizer") == optimizer
    assert ("FusedEma" in name) == any("is not known" in text for text in reading.warnings)
    one_bit = "bit" in name.lower() or "Zero" in name
    assert one_bit == any("error feedback" in text for text in reading.warnings)


def test_parallel_sizes():
    reading = read(
        tensor_parallel={"autotp_size": 4}, pipeline={"stages": 2, "anything": 1}, sequence_parallel_size=2
    )
    assert (reading.value("tp"), reading.value("pp"), reading.value("cp")) == (4, 2, 2)
    placeholder = read(tensor_parallel={"autotp_size": "${autotp_size}"}, pipeline={"stages": "auto"})
    assert "tp" not in placeholder.values
    assert "pp" not in placeholder.values


def test_activation_checkpointing_is_handed_on_but_turns_nothing_on():
    reading = read(
        activation_checkpointing={"partition_activations": True, "cpu_checkpointing": False, "profile": True}
    )
    assert plain(reading.settings) == {"partition_activations": True, "cpu_checkpointing": False}
    assert "checkpointing" not in reading.values
    assert any("--checkpointing" in text for text in reading.assumptions)


@pytest.mark.parametrize(
    ("given", "completed"),
    [
        ((512, 4, 8, 16), (512, 4, 8, 16)),
        ((512, 4, None, 16), (512, 4, 8, 16)),
        ((512, None, 8, 16), (512, 4, 8, 16)),
        ((None, 4, 8, 16), (512, 4, 8, 16)),
        ((512, 4, 8, None), (512, 4, 8, 16)),
        ((512, None, None, 16), (512, 32, 1, 16)),
        ((None, 4, None, 16), (64, 4, 1, 16)),
        ((None, 4, None, None), (None, 4, 1, None)),
        ((512, 4, None, None), (512, 4, None, None)),
        ((512, None, None, None), (512, None, 1, None)),
        ((None, None, 8, 16), (None, None, 8, 16)),
    ],
)
def test_batch_triangle(given, completed):
    assert batch_triangle(*given) == completed


@pytest.mark.parametrize("given", [(512, 4, 8, 8), (10, 4, None, 1), (10, 3, 4, None), (7, None, None, 2)])
def test_batch_triangle_contradictions(given):
    with pytest.raises(SpecError, match="train batch"):
        batch_triangle(*given)


def test_contradictory_batches_warn():
    config = {"train_batch_size": 512, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8}
    reading = deepspeed_reading(config, "ds.json", dp=8)
    assert any("DeepSpeed refuses this" in text for text in reading.warnings)
    assert reading.value("micro_batch") == 4


@pytest.mark.parametrize("left_open", ["auto", "GB_SIZE,"])
def test_batches_left_to_the_launcher_are_not_guessed(left_open):
    reading = read(
        train_micro_batch_size_per_gpu=4, gradient_accumulation_steps=left_open, train_batch_size=left_open
    )
    assert reading.value("micro_batch") == 4
    assert "grad_accum" not in reading.values
    assert reading.totals == {}


def test_auto_resolves_as_the_trainer_does():
    reading = read_deepspeed(CONFIGS / "ds_zero3_offload.json")
    settings, assumptions = resolve_auto(reading.settings, 4096)
    assert settings["reduce_bucket_size"].value == 16_777_216
    assert settings["stage3_prefetch_bucket_size"].value == 15_099_494
    assert settings["stage3_param_persistence_threshold"].value == 40_960
    assert settings["sub_group_size"].value == 10**9
    assert assumptions == []
    assert "h * h" in settings["reduce_bucket_size"].origin


def test_auto_without_a_hidden_size_falls_back():
    given = {
        "reduce_bucket_size": Given("auto", "file:x"),
        "stage3_max_live_parameters": Given("auto", "file:x"),
    }
    settings, assumptions = resolve_auto(given, None)
    assert plain(settings) == {"reduce_bucket_size": 500_000_000, "stage3_max_live_parameters": 10**9}
    assert len(assumptions) == 2


def test_defaults_are_deepspeeds_own():
    defaults = {
        row.path.rpartition(".")[2]: row.default for row in KEYS.rows if row.to.startswith("settings.")
    }
    assert defaults["reduce_bucket_size"] == defaults["allgather_bucket_size"] == 500_000_000
    assert defaults["stage3_prefetch_bucket_size"] == 50_000_000
    assert defaults["stage3_param_persistence_threshold"] == 100_000
    assert defaults["sub_group_size"] == defaults["stage3_max_live_parameters"] == 1_000_000_000
    assert defaults["overlap_comm"] is None


def test_every_row_is_found_by_each_of_its_names():
    for row in KEYS.rows:
        for name in (row.path, *row.aliases):
            assert KEYS.find(name.rstrip("*") or name) is row or "*" in name


def test_duplicate_keys_are_refused_as_deepspeed_does(tmp_path):
    path = tmp_path / "ds.json"
    path.write_text('{"zero_optimization": {"stage": 2, "stage": 3}}')
    with pytest.raises(FileError, match="'stage' appears twice"):
        read_deepspeed(path)


def test_tabs_and_spaces_around_names(tmp_path):
    path = tmp_path / "ds.json"
    path.write_text(json.dumps({"zero_optimization ": {"stage": 2}}, indent="\t"))
    assert read_deepspeed(path).value("strategy") == "zero2"
