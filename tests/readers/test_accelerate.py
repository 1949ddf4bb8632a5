"""Accelerate's plug-ins, inline or by file, and the trainers' own files."""

import json
from pathlib import Path

import pytest

from zerocalc.errors import SpecError
from zerocalc.readers.accelerate import accelerate_reading, read_accelerate, unwrapped
from zerocalc.readers.trainer import trainer_reading

CONFIGS = Path(__file__).parents[1] / "data" / "configs"


def read(**config):
    return accelerate_reading(config, "acc.yaml")


def train(**config):
    return trainer_reading(config, "axolotl.yaml")


def plain(given):
    return {name: value.value for name, value in given.items()}


def test_fsdp2_with_replicas_and_other_groups():
    path = CONFIGS / "accelerate_fsdp2_hsdp.yaml"
    reading = read_accelerate(path)
    assert plain(reading.values) == {
        "framework": "pytorch", "strategy": "hsdp", "gpus": 32, "gpus_per_node": 8, "tp": 2, "cp": 2, "shard_size": 8,
        "precision": "mixed-bf16", "reduce_dtype": "bf16", "checkpointing": "full",
        "offload_params": "none", "offload_optimizer": "none",
    }  # fmt: skip
    assert plain(reading.settings) == {
        "fsdp_version": 2,
        "reshard_after_forward": True,
        "reduce_dtype": "bf16",
    }
    assert reading.warnings == []
    assert reading.values["gpus"].origin == f"file:{path}:num_processes"
    assert reading.values["tp"].origin.endswith("parallelism_config.parallelism_config_tp_size")


def test_deepspeed_by_file_decides():
    reading = read_accelerate(CONFIGS / "accelerate_deepspeed.yaml")
    assert reading.value("strategy") == "zero3"
    assert reading.value("framework") == "deepspeed"
    assert (reading.value("gpus"), reading.value("gpus_per_node")) == (16, 8)
    assert (reading.value("micro_batch"), reading.value("grad_accum")) == (4, 8)
    assert reading.settings["offload_optimizer.ratio"].value == 0.3
    assert "ds_zero3_offload.json" in reading.values["strategy"].origin
    assert [text for text in reading.warnings if "zero_stage has no effect" in text]


@pytest.mark.parametrize(("train_batch", "accum"), [(64, 2), (60, None)])
def test_the_processes_complete_deepspeeds_batches(train_batch, accum):
    inline = {
        "zero_optimization": {"stage": 1},
        "train_batch_size": train_batch,
        "train_micro_batch_size_per_gpu": 4,
    }
    groups = {"sp_size": 2}
    reading = read(
        distributed_type="DEEPSPEED", num_processes=16, deepspeed_config=inline, parallelism_config=groups
    )
    assert (reading.value("gpus"), reading.value("cp"), reading.value("dp")) == (16, 2, None)
    assert reading.value("grad_accum") == accum
    assert (accum is None) == any("DeepSpeed refuses" in text for text in reading.warnings)


def test_a_deepspeed_file_that_is_not_there():
    reading = read(
        distributed_type="DEEPSPEED", num_processes=8, deepspeed_config="no/such.json", mixed_precision="bf16"
    )
    assert "strategy" not in reading.values
    assert reading.value("precision") == "mixed-bf16"
    assert any("--deepspeed" in text for text in reading.warnings)


@pytest.mark.parametrize(
    ("inline", "values"),
    [
        ({"zero_stage": 3, "offload_optimizer_device": "cpu", "offload_param_device": "nvme"},
         {"strategy": "zero3", "offload_optimizer": "cpu", "offload_params": "nvme"}),
        ({"zero_stage": 2, "offload_optimizer_device": "none", "gradient_accumulation_steps": 4},
         {"strategy": "zero2", "offload_optimizer": "none", "grad_accum": 4}),
        ({"zero_stage": 1, "offload_param_device": "cpu"}, {"strategy": "zero1", "offload_params": "none"}),
        ({"zero_stage": 0}, {"strategy": "ddp"}),
        ({"zero3_init_flag": False}, {"strategy": "zero2"}),
        ({"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}}, {"strategy": "zero3", "precision": "mixed-bf16"}),
    ],
)  # fmt: skip
def test_deepspeed_inline(inline, values):
    reading = read(
        distributed_type="DEEPSPEED", num_processes=8, mixed_precision="bf16", deepspeed_config=inline
    )
    assert {name: reading.value(name) for name in values} == values
    assert reading.value("framework") == "deepspeed"


def test_deepspeed_stage_out_of_range():
    with pytest.raises(SpecError, match="zero_stage: must be 0, 1, 2 or 3"):
        read(distributed_type="DEEPSPEED", deepspeed_config={"zero_stage": 4})


def test_megatron():
    reading = read_accelerate(CONFIGS / "accelerate_megatron.yaml")
    values = plain(reading.values)
    assert values == {
        "framework": "megatron", "strategy": "zero1", "tp": 4, "pp": 2, "grad_accum": 8, "gpus": 16, "gpus_per_node": 8,
        "precision": "mixed-bf16", "checkpointing": "selective", "sequence_parallel": True,
    }  # fmt: skip


def test_megatron_degrees_under_another_type_have_no_effect():
    reading = read(
        distributed_type="MULTI_GPU", num_processes=8, megatron_lm_config={"megatron_lm_tp_degree": 4}
    )
    assert "tp" not in reading.values
    assert any("megatron_lm_config has no effect" in text for text in reading.warnings)


@pytest.mark.parametrize(
    ("word", "strategy", "reshard"),
    [("FULL_SHARD", "zero3", None), ("SHARD_GRAD_OP", "zero2", None), ("NO_SHARD", "ddp", None),
     ("HYBRID_SHARD", "hsdp", None), ("HYBRID_SHARD_ZERO2", "hsdp", False), (1, "zero3", None), (2, "zero2", None),
     (3, "ddp", None), (4, "hsdp", None), (5, "hsdp", False), ("full_shard", "zero3", None),
     ("ShardingStrategy.FULL_SHARD", "zero3", None)],
)  # fmt: skip
@pytest.mark.parametrize("prefix", ["fsdp_", ""])
def test_fsdp1_strategies(prefix, word, strategy, reshard):
    config = {
        f"{prefix}sharding_strategy": word,
        f"{prefix}min_num_params": "1e8",
        f"{prefix}offload_params": True,
    }
    reading = read(distributed_type="FSDP", num_processes=16, num_machines=2, fsdp_config=config)
    assert reading.value("strategy") == strategy
    assert reading.value("offload_params") == reading.value("offload_optimizer") == "cpu"
    assert reading.settings["fsdp_version"].value == 1
    assert reading.value("shard_size") == (8 if strategy == "hsdp" else None)
    given = reading.settings.get("reshard_after_forward")
    assert (given.value if given else None) == reshard
    assert reading.warnings == []


@pytest.mark.parametrize(
    ("value", "strategy"),
    [
        (True, "zero3"),
        (False, "zero2"),
        ("FULL_SHARD", "zero3"),
        ("SHARD_GRAD_OP", "zero2"),
        ("true", "zero3"),
    ],
)
def test_fsdp2_reshard(value, strategy):
    reading = read(
        distributed_type="FSDP", fsdp_config={"fsdp_version": 2, "fsdp_reshard_after_forward": value}
    )
    assert reading.value("strategy") == strategy


def test_an_unknown_strategy():
    with pytest.raises(SpecError, match="unknown strategy 'HALF_SHARD'") as error:
        read(distributed_type="FSDP", fsdp_config={"fsdp_sharding_strategy": "HALF_SHARD"})
    assert "FULL_SHARD" in error.value.hint


@pytest.mark.parametrize("section", ["fsdp_config", "deepspeed_config", "megatron_lm_config"])
def test_sections_of_another_plugin_have_no_effect(section):
    keys = {
        "fsdp_config": "fsdp_offload_params",
        "deepspeed_config": "zero_stage",
        "megatron_lm_config": "tp_degree",
    }
    reading = read(distributed_type="MULTI_GPU", num_processes=8, **{section: {keys[section]: 1}})
    assert reading.value("strategy") == "ddp"
    assert "offload_params" not in reading.values
    assert any(
        f"{section} has no effect under distributed_type MULTI_GPU" in text for text in reading.warnings
    )
    assert read(distributed_type="MULTI_GPU", num_processes=8, **{section: {}}).warnings == []


@pytest.mark.parametrize("value", ["NO", False, "no"])
def test_no_distribution(value):
    reading = read(distributed_type=value, num_processes=4, mixed_precision="no")
    assert (reading.value("gpus"), reading.value("strategy"), reading.value("precision")) == (
        1,
        "ddp",
        "fp32",
    )
    assert any("num_processes 4 has no effect" in text for text in reading.warnings)


@pytest.mark.parametrize(
    ("config", "kind"),
    [({"distributed_type": None, "num_processes": 8}, "MULTI_GPU"), ({"num_processes": 1}, "NO"),
     ({"num_processes": 8, "fsdp_config": {"fsdp_version": 2}}, "FSDP")],
)  # fmt: skip
def test_a_missing_type_is_inferred_and_said(config, kind):
    assert any(f"read as {kind}" in text for text in read(**config).assumptions)


@pytest.mark.parametrize(
    ("kind", "word", "precision", "autocast"),
    [("MULTI_GPU", "bf16", "fp32", True), ("MULTI_GPU", "no", "fp32", False), ("MULTI_GPU", False, "fp32", False),
     ("FSDP", "fp16", "mixed-fp16", False), ("DEEPSPEED", "bf16", "mixed-bf16", False), ("FSDP", "fp8", "fp8-te", False)],
)  # fmt: skip
def test_mixed_precision_by_plugin(kind, word, precision, autocast):
    reading = read(distributed_type=kind, num_processes=8, mixed_precision=word)
    assert reading.value("precision") == precision
    assert ("autocast" in reading.settings) == autocast


def test_processes():
    uneven = read(distributed_type="MULTI_GPU", num_processes=7, num_machines=2)
    assert (uneven.value("gpus"), uneven.value("gpus_per_node")) == (7, None)
    assert any("not a multiple" in text for text in uneven.warnings)
    assert "gpus" not in read(distributed_type="MULTI_GPU", num_processes="auto", num_machines=2).values
    with pytest.raises(SpecError, match="num_processes: must be at least 1"):
        read(distributed_type="MULTI_GPU", num_processes=0)


def test_accumulation_synchronises_once():
    first = read(distributed_type="FSDP", gradient_accumulation_steps=4, fsdp_config={"fsdp_version": 2})
    assert first.settings["requires_gradient_sync"].value is False
    second = read(distributed_type="MULTI_GPU", num_processes=2, gradient_accumulation_steps=4)
    assert second.settings["no_sync"].value is True
    third = read(
        distributed_type="DEEPSPEED", gradient_accumulation_steps=4, deepspeed_config={"zero_stage": 2}
    )
    assert third.settings == {}


def test_json_accelerate_files(tmp_path):
    path = tmp_path / "default_config.json"
    path.write_text(
        json.dumps(
            {"compute_environment": "LOCAL_MACHINE", "distributed_type": "MULTI_GPU", "num_processes": 2}
        )
    )
    assert read_accelerate(path).value("gpus") == 2


def test_unknown_keys_are_named():
    reading = read(
        distributed_type="MULTI_GPU", num_processes=2, invalid_key=1, fsdp_config={"fsdp_shardin_strategy": 1}
    )
    assert any("invalid_key" in text and "fsdp_shardin_strategy" in text for text in reading.warnings)


def test_axolotl():
    reading = read_accelerate(CONFIGS / "axolotl_qlora.yaml")
    assert plain(reading.values) == {
        "model": "meta-llama/Meta-Llama-3-8B", "framework": "pytorch", "strategy": "zero3", "frozen_dtype": "nf4",
        "lora_rank": 32, "lora_targets": ["q_proj", "k_proj", "v_proj"], "seq_len": 4096, "micro_batch": 2,
        "grad_accum": 4, "optimizer": "adam8bit", "precision": "mixed-bf16", "reduce_dtype": "bf16",
        "checkpointing": "full", "attention": "flash", "offload_params": "cpu", "offload_optimizer": "cpu",
    }  # fmt: skip
    assert [text.partition(": ")[2] for text in reading.warnings] == [
        "optimizer paged_adamw_8bit may move states to host memory, which is not modelled"
    ]


@pytest.mark.parametrize(
    ("fsdp", "strategy"),
    [(["full_shard", "auto_wrap"], "zero3"), ("full_shard auto_wrap", "zero3"), ("shard_grad_op", "zero2"),
     (["hybrid_shard", "auto_wrap"], "hsdp"), (True, "zero3"), ([], "ddp"), (None, "ddp"), ("", "ddp"), (False, "ddp"),
     ("${FSDP}", "ddp")],
)  # fmt: skip
def test_fsdp_words(fsdp, strategy):
    assert train(base_model="x/y", fsdp=fsdp).value("strategy") == strategy


def test_fsdp_offload_word_and_version():
    reading = train(
        fsdp=["full_shard", "offload"], fsdp_version=2, fsdp_config={"reshard_after_forward": False}
    )
    assert reading.value("offload_optimizer") == "cpu"
    assert reading.value("strategy") == "zero2"


def test_a_trainer_with_deepspeed(tmp_path):
    (tmp_path / "deepspeed_configs").mkdir()
    (tmp_path / "examples" / "llama").mkdir(parents=True)
    (tmp_path / "deepspeed_configs" / "zero2.json").write_text(
        '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}'
    )
    path = tmp_path / "examples" / "llama" / "fft.yml"
    path.write_text(
        "base_model: a/b\ndeepspeed: deepspeed_configs/zero2.json\nbf16: true\nmicro_batch_size: 2\n"
    )
    reading = read_accelerate(path)
    assert (reading.value("strategy"), reading.value("precision")) == ("zero2", "mixed-bf16")
    assert reading.value("framework") == "deepspeed"
    placeholder = train(base_model="a/b", deepspeed="${DEEPSPEED}")
    assert "strategy" not in placeholder.values


@pytest.mark.parametrize(
    ("keys", "values"),
    [
        ({"per_device_train_batch_size": 4, "cutoff_len": 2048, "finetuning_type": "lora", "lora_rank": 8,
          "lora_target": "all", "model_name_or_path": "a/b"},
         {"micro_batch": 4, "seq_len": 2048, "lora_rank": 8, "lora_targets": ["all-linear"], "model": "a/b"}),
        ({"gradient_checkpointing": False}, {"checkpointing": "none"}),
        ({"gradient_checkpointing": "offload"}, {"checkpointing": "full"}),
        ({"base_model": "a/b", "bf16": True}, {"precision": "bf16-pure"}),
        ({"base_model": "a/b", "bf16": True, "adapter": "lora", "lora_r": 8}, {"precision": "fp32", "frozen_dtype": "bf16"}),
        ({"bfloat16": True}, {"precision": "bf16-pure"}),
        ({"pure_bf16": True}, {"precision": "bf16-pure"}),
        ({"fp16": True, "fsdp": True}, {"precision": "mixed-fp16"}),
        ({"attn_implementation": "sdpa"}, {"attention": "flash"}),
        ({"eager_attention": True}, {"attention": "eager"}),
        ({"optimizer": "adamw_torch_fused"}, {"optimizer": "adamw"}),
        ({"optim": "adamw_torch_8bit"}, {"optimizer": "adam8bit-torchao"}),
        ({"sequence_parallel_degree": 4}, {"cp": 4}),
        ({"fsdp": True, "dp_shard_size": 4, "dp_replicate_size": 2}, {"strategy": "hsdp", "shard_size": 4, "dp": 8}),
    ],
)  # fmt: skip
def test_trainer_keys(keys, values):
    reading = train(**keys)
    assert {name: reading.value(name) for name in values} == values


def test_a_loss_that_keeps_no_logits():
    assert train(liger_fused_linear_cross_entropy=True).settings["loss"].value == "fused"
    assert train(chunked_cross_entropy=True).settings["loss"].value == "chunked"
    assert "loss" not in train(cut_cross_entropy=False).settings


def test_a_lora_pattern_stands_for_every_linear_layer():
    reading = train(
        adapter="lora", lora_r=8, lora_target_modules=r"model.layers.[\d]+.(mlp|self_attn).(up|q)_proj"
    )
    assert reading.value("lora_targets") == ["all-linear"]
    assert any("is a pattern" in text for text in reading.warnings)


def test_weights_and_biases_wrapping():
    wrapped = {
        "_wandb": {"value": {}},
        "bf16": {"desc": None, "value": True},
        "fsdp": {"value": ["full_shard"]},
    }
    assert unwrapped(wrapped)["bf16"] is True
    assert unwrapped({"a": {"value": 1}, "b": 2}) == {"a": {"value": 1}, "b": 2}


@pytest.mark.parametrize(
    "text",
    [
        '{"model_type": "llama", "num_hidden_layers": 32}',
        '{"model": {"name": "llama3"}, "training": {"steps": 1}}',
    ],
)
def test_another_tools_file_is_refused(tmp_path, text):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(SpecError, match="no file of Accelerate or of a trainer"):
        read_accelerate(path)
