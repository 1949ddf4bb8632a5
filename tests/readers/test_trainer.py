"""The trainers' own files: axolotl, the Hugging Face Trainer, LLaMA-Factory old and new."""

import pytest

from zerocalc.readers.accelerate import read_accelerate
from zerocalc.readers.trainer import trainer_reading


def read(**config):
    return trainer_reading(config, "sft.yaml")


def values(reading, *names):
    return tuple(reading.value(name) for name in names)


@pytest.mark.parametrize(
    ("config", "precision", "frozen"),
    [
        ({"torch_dtype": "bfloat16", "bf16": True}, "bf16-pure", None),
        ({"dtype": "torch.bfloat16"}, "bf16-pure", None),
        ({"torch_dtype": "float32", "bf16": True}, "fp32", None),
        ({"torch_dtype": None, "bf16": True}, "fp32", None),
        ({"torch_dtype": "bfloat16", "bf16": True, "use_peft": True, "lora_r": 8}, "fp32", "bf16"),
        ({"torch_dtype": "bfloat16", "bf16": True, "fsdp": "full_shard"}, "mixed-bf16", None),
        ({"torch_dtype": "bfloat16", "fsdp": "full_shard"}, "bf16-pure", None),
        ({"finetuning_type": "lora", "lora_rank": 8, "bf16": True}, "fp32", "bf16"),
        ({"finetuning_type": "full", "bf16": True}, "fp32", None),
    ],
)
def test_the_type_that_weights_are_loaded_in(config, precision, frozen):
    """What is loaded in bf16 is trained in bf16, unless a policy keeps an fp32 copy or only an adapter is trained."""
    assert values(read(**config), "precision", "frozen_dtype") == (precision, frozen)


def test_megatron_core_through_llama_factory():
    reading = read(
        tensor_model_parallel_size=2,
        pipeline_model_parallel_size=4,
        expert_model_parallel_size=2,
        sequence_parallel=True,
        use_distributed_optimizer=True,
        recompute_granularity="full",
        bf16=True,
    )
    assert values(reading, "framework", "strategy", "tp", "pp", "ep") == ("megatron", "zero1", 2, 4, 2)
    assert values(reading, "sequence_parallel", "checkpointing", "precision") == (True, "full", "mixed-bf16")


def test_llama_factorys_new_sections(tmp_path):
    reading = read(
        model="org/model",
        micro_batch_size=1,
        cutoff_len=2048,
        cp_size=2,
        dist_config={"name": "fsdp2", "dcp_path": None},
        peft_config={"name": "lora", "r": 16, "target_modules": "all"},
        quant_config={"name": "bnb", "quantization_bit": 4},
    )
    assert values(reading, "model", "framework", "strategy", "cp") == ("org/model", "pytorch", "zero3", 2)
    assert values(reading, "lora_rank", "lora_targets", "frozen_dtype") == (16, ["all-linear"], "nf4")
    assert reading.settings["fsdp_version"].value == 2
    assert reading.warnings == []
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}}')
    (tmp_path / "v1.yaml").write_text("dist_config: {name: deepspeed, config_file: ds.json}\n")
    assert values(read_accelerate(tmp_path / "v1.yaml"), "framework", "strategy") == ("deepspeed", "zero2")


@pytest.mark.parametrize(("stage", "said"), [("sft", 0), ("pt", 0), ("rm", 0), ("dpo", 1), ("ppo", 1)])
def test_a_stage_that_holds_a_second_model_is_said(stage, said):
    warnings = read(stage=stage).warnings
    assert len(warnings) == said
    assert all("reference model" in text for text in warnings)


def test_a_misspelt_key_is_not_likened_to_the_beginning_of_a_name():
    assert read(mode=1).warnings == ["sft.yaml: unknown keys, not read: mode (did you mean model?)"]
    assert read(wandbx=1).warnings == ["sft.yaml: unknown keys, not read: wandbx"]
