"""The fragments themselves: minimal, in the tool's own format, refused with a reason where they cannot be right."""

import json
import tomllib

import pytest
import yaml

from tests.writers.jobs import job_of
from zerocalc.errors import UnknownNameError, UsageError
from zerocalc.writers import TOOLS, emit, fragment
from zerocalc.writers.common import flags
from zerocalc.writers.plain import toml_text, yaml_text


def test_deepspeed_says_only_what_is_not_its_default():
    text = emit(job_of(gpus=8, strategy="zero2", micro_batch=4, offload_optimizer="cpu"), "deepspeed")
    assert json.loads(text) == {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 1,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
    }


def test_deepspeeds_settings_stand_where_deepspeed_reads_them():
    settings = {
        "reduce_bucket_size": "2e8",
        "allgather_bucket_size": "5e8",
        "stage3_prefetch_bucket_size": 0,
        "offload_param.buffer_count": 8,
        "partition_activations": "true",
        "grad_accum_dtype": "fp32",
    }
    job = job_of(settings, gpus=8, framework="deepspeed", offload_params="nvme", offload_optimizer="cpu")
    document = json.loads(emit(job, "deepspeed"))
    zero = document["zero_optimization"]
    assert zero["reduce_bucket_size"] == 200_000_000
    assert "allgather_bucket_size" not in zero
    assert zero["stage3_prefetch_bucket_size"] == 0
    assert zero["offload_param"] == {"device": "nvme", "nvme_path": "/local_nvme", "buffer_count": 8}
    assert document["activation_checkpointing"] == {"partition_activations": True}
    assert document["data_types"] == {"grad_accum_dtype": "fp32"}
    assert document["communication_data_type"] == "bf16"


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        ({"strategy": "mics", "shard_size": 4}, {"mics_shard_size": 4}),
        (
            {"strategy": "zeropp"},
            {"zero_hpz_partition_size": 8, "zero_quantized_weights": True, "zero_quantized_gradients": True},
        ),
        ({"strategy": "zeropp", "settings": {"qwz": "false"}}, {"zero_hpz_partition_size": 8}),
        (
            {"strategy": "zeropp", "framework": "deepspeed", "settings": {"zero_hpz_partition_size": 4}},
            {"zero_hpz_partition_size": 4},
        ),
    ],
)
def test_groups_of_stage_3(words, keys):
    zero = json.loads(emit(job_of(gpus=16, gpus_per_node=8, **words), "deepspeed"))["zero_optimization"]
    assert keys.items() <= zero.items()
    assert ("zero_quantized_weights" in zero) == ("zero_quantized_weights" in keys)


def test_accelerate_takes_the_plugin_that_can():
    kinds = {}
    for strategy in ("ddp", "zero1", "zero2", "zero3"):
        kinds[strategy] = yaml.safe_load(emit(job_of(gpus=8, strategy=strategy), "accelerate"))[
            "distributed_type"
        ]
    assert kinds == {"ddp": "DEEPSPEED", "zero1": "DEEPSPEED", "zero2": "FSDP", "zero3": "FSDP"}
    plain = job_of(gpus=8, strategy="ddp", precision="fp32")
    assert yaml.safe_load(emit(plain, "accelerate")) == {
        "distributed_type": "MULTI_GPU", "num_processes": 8, "mixed_precision": "no",
    }  # fmt: skip
    nvme = job_of(gpus=8, offload_optimizer="nvme", offload_params="nvme")
    assert yaml.safe_load(emit(nvme, "accelerate"))["deepspeed_config"]["offload_param_device"] == "nvme"


def test_torchtitans_degrees():
    job = job_of(
        gpus=128, tp=2, cp=2, strategy="hsdp", shard_size=16, micro_batch=1, seq_len=8192, grad_accum=2
    )
    document = tomllib.loads(emit(job, "torchtitan"))
    assert document["parallelism"] == {
        "data_parallel_shard_degree": 8, "data_parallel_replicate_degree": 4, "tensor_parallel_degree": 2,
        "context_parallel_degree": 2,
    }  # fmt: skip
    assert document["training"]["global_batch_size"] == 64
    assert document["activation_checkpoint"] == {"mode": "none"}


@pytest.mark.parametrize(
    ("tool", "words", "reason", "can"),
    [
        ("deepspeed", {"strategy": "hsdp", "shard_size": 4}, "hsdp", "fsdp2"),
        ("deepspeed", {"precision": "bf16-pure"}, "no master weights", "torchtitan"),
        ("deepspeed", {"precision": "bf16-master", "strategy": "ddp"}, "stage 0", "zero1"),
        ("deepspeed", {"pp": 2}, "no key for pp", "torchtitan"),
        ("deepspeed", {"precision": "fp8-te"}, "fp8-te", "mixed-bf16"),
        ("deepspeed", {"strategy": "zero1", "offload_optimizer": "nvme"}, "acts as cpu", "zero3"),
        ("deepspeed", {"framework": "pytorch"}, "pytorch's", "--framework deepspeed"),
        ("accelerate", {"framework": "pytorch", "strategy": "zero1"}, "no zero1", "deepspeed"),
        ("accelerate", {"framework": "pytorch"}, "one type for both", "--reduce-dtype bf16"),
        ("accelerate", {"strategy": "zeropp"}, "no key for zeropp", "--emit deepspeed"),
        ("accelerate", {"precision": "bf16-pure"}, "no master weights", "fsdp2"),
        (
            "accelerate",
            {"strategy": "hsdp", "shard_size": 8, "framework": "pytorch", "reduce_dtype": "bf16"},
            "is zero3",
            "shard-size",
        ),
        ("torchtitan", {"strategy": "zero1"}, "no zero1", "deepspeed"),
        ("torchtitan", {"strategy": "ddp"}, "one copy", "deepspeed"),
        ("torchtitan", {"precision": "mixed-fp16"}, "fp16", "fsdp2"),
        ("torchtitan", {"offload_optimizer": "nvme", "offload_params": "nvme"}, "both to cpu", "deepspeed"),
    ],
)
def test_a_refusal_names_the_reason_and_a_way_out(tool, words, reason, can):
    with pytest.raises(UsageError) as error:
        emit(job_of(gpus=8, gpus_per_node=8, **words), tool)
    assert reason in error.value.message
    assert can in error.value.hint


def test_another_tool_and_offload_that_no_strategy_has():
    with pytest.raises(UnknownNameError, match="deepspeed"):
        emit(job_of(gpus=8), "deepsped")
    with pytest.raises(UsageError, match="keeps whole parameters"):
        emit(job_of(gpus=8, strategy="zero2", offload_params="cpu"), "deepspeed")


@pytest.mark.parametrize("tool", TOOLS)
def test_a_name_cannot_break_out_of_its_comment(tool):
    job = job_of(gpus=8)
    named = job.model_copy(update={"model": job.model.model_copy(update={"name": "a\nb: [\u00fc"})})
    text = emit(named, tool)
    assert text.isascii()
    assert not any(line.startswith("b:") for line in text.splitlines())


def test_what_is_unsaid_is_said_as_flags():
    job = job_of({"loss": "fused"}, gpus=8, framework="deepspeed", seq_len=4096, checkpointing="full")
    part = fragment(job, "deepspeed")
    assert flags(part.unsaid) == "--gpus 8 --seq-len 4096 --checkpointing full --set loss=fused"
    assert len(part.notes) == 2


def test_what_a_tool_does_in_its_own_way_is_noted():
    job = job_of(gpus=8, framework="pytorch", reduce_dtype="bf16")
    assert "root after forward" in fragment(job, "accelerate").notes[0]
    assert "wrap=torchtitan" in fragment(job, "torchtitan").notes[0]
    told = job_of(
        {"wrap": "torchtitan", "reshard_after_forward": "true"},
        gpus=8,
        framework="pytorch",
        reduce_dtype="bf16",
    )
    assert fragment(told, "accelerate").notes == ()
    assert all("wrap" not in note for note in fragment(told, "torchtitan").notes)
    with pytest.raises(UsageError, match="root_only"):
        fragment(job_of({"wrap": "root_only"}, gpus=8, framework="pytorch"), "torchtitan")


def test_scalars_mean_the_same_in_yaml_1_1_and_in_toml():
    data = {"a": {"t": True, "n": 3, "w": "bf16", "word": "no", "path": "/x y", "f": 0.3}}
    assert yaml.safe_load(yaml_text(data, ["a comment"])) == data
    assert tomllib.loads(toml_text(data, ["a comment"])) == data
