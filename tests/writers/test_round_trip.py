"""Every fragment that is written reads back as the job it was written from."""

import itertools

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.writers.jobs import READ, essence, job_of, read_back, written
from zerocalc.evaluate import evaluate, inapplicable

STRATEGIES = ("ddp", "zero1", "zero2", "zero3", "hsdp", "mics", "zeropp")
OFFLOADS = (
    ("none", "none"),
    ("cpu", "none"),
    ("cpu", "cpu"),
    ("nvme", "none"),
    ("nvme", "nvme"),
    ("none", "cpu"),
)
PRECISIONS = (
    "mixed-bf16", "mixed-fp16", "fp32", "bf16-pure", "bf16-fp32-grads", "bf16-master", "bf16-master-states",
    "deepseek-v3", "fp8-te", "bf16-kahan", "zero-infinity",
)  # fmt: skip
ONCE = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def paper_jobs():
    return st.fixed_dictionaries(
        {
            "strategy": st.sampled_from(STRATEGIES),
            "offload": st.sampled_from(OFFLOADS),
            "precision": st.sampled_from(PRECISIONS),
            "grad_dtype": st.sampled_from((None, "fp32", "bf16")),
            "reduce_dtype": st.sampled_from((None, "fp32", "bf16")),
            "checkpointing": st.sampled_from(("none", "selective", "full")),
            "dp": st.sampled_from((1, 2, 8, 64)),
            "tp": st.sampled_from((1, 1, 2)),
            "pp": st.sampled_from((1, 1, 2)),
            "cp": st.sampled_from((1, 1, 2)),
            "gpus_per_node": st.sampled_from((8, 8, 8, 4, None)),
            "shard_size": st.sampled_from((None, 4, 8)),
            "micro_batch": st.sampled_from((None, 1, 3)),
            "seq_len": st.sampled_from((None, 2048)),
            "grad_accum": st.sampled_from((1, 4)),
            "optimizer": st.sampled_from((None, "adam", "lion")),
        }
    )


@pytest.mark.parametrize("tool", READ)
@ONCE
@given(words=paper_jobs())
def test_any_job_of_the_papers_reads_back_or_is_refused(tool, words, tmp_path):
    optimizer, params = words.pop("offload")
    job = job_of(**words, offload_optimizer=optimizer, offload_params=params)
    if words["strategy"] in ("hsdp", "mics"):
        assume(words["shard_size"] or words["gpus_per_node"])
    part = written(job, tool)
    if part is not None:
        assert not inapplicable(job)
        assert essence(read_back(part, tool, tmp_path)) == essence(job)


CASES = [
    ("deepspeed", {"strategy": strategy, "offload_optimizer": optimizer, "offload_params": params, "precision": precision})
    for strategy, (optimizer, params), precision in itertools.product(
        ("zero1", "zero2", "zero3"), OFFLOADS[:3], ("mixed-bf16", "mixed-fp16", "fp32", "bf16-master")
    )
    if params == "none" or strategy == "zero3"
] + [
    (tool, {"strategy": strategy, "offload_optimizer": tier, "offload_params": tier, "precision": precision})
    for tool, strategy, tier, precision in itertools.product(
        ("accelerate", "torchtitan"), ("zero2", "zero3", "hsdp"), ("none", "cpu"), ("mixed-bf16", "fp32")
    )
    if tier == "none" or strategy != "zero2"
]  # fmt: skip


@pytest.mark.parametrize(("tool", "words"), CASES)
def test_what_a_tool_does_every_day_is_not_refused(tool, words, tmp_path):
    job = job_of(
        **words, gpus=16, gpus_per_node=8, micro_batch=2, seq_len=1024, grad_accum=4, checkpointing="full"
    )
    part = written(job, tool)
    assert part is not None
    assert essence(read_back(part, tool, tmp_path)) == essence(job)


DEEPSPEED_SETTINGS = {
    "reduce_bucket_size": st.sampled_from(("5e8", "2e8", "1")),
    "allgather_bucket_size": st.sampled_from(("5e8", "1e8")),
    "overlap_comm": st.sampled_from(("true", "false")),
    "contiguous_gradients": st.booleans(),
    "round_robin_gradients": st.booleans(),
    "sub_group_size": st.sampled_from(("1e9", "1e8")),
    "stage3_prefetch_bucket_size": st.sampled_from((0, "5e7", "1e6")),
    "stage3_param_persistence_threshold": st.sampled_from((0, "1e5")),
    "grad_accum_dtype": st.sampled_from(("fp32", "bf16")),
    "communication_data_type": st.sampled_from(("fp32", "bf16")),
    "offload_optimizer.ratio": st.sampled_from((0.3, 1.0)),
    "offload_param.buffer_count": st.sampled_from((5, 8)),
    "partition_activations": st.booleans(),
    "loss": st.sampled_from(("eager", "fused")),
    "optimizer_class": st.sampled_from(("adamw", "fusedadam")),
}


@ONCE
@given(
    knobs=st.fixed_dictionaries({}, optional=DEEPSPEED_SETTINGS),
    strategy=st.sampled_from(("ddp", "zero1", "zero2", "zero3", "mics", "zeropp")),
    offload=st.sampled_from(OFFLOADS),
)
def test_deepspeeds_settings_read_back_to_the_same_bytes(knobs, strategy, offload, tmp_path):
    job = job_of(
        knobs, framework="deepspeed", strategy=strategy, gpus=16, gpus_per_node=8, micro_batch=1,
        offload_optimizer=offload[0], offload_params=offload[1],
    )  # fmt: skip
    part = written(job, "deepspeed")
    if part is not None:
        assert answer(read_back(part, "deepspeed", tmp_path)) == answer(job)


TORCH_SETTINGS = {
    "reshard_after_forward": st.sampled_from(("true", "false", 2)),
    "reduce_dtype": st.sampled_from(("fp32", "bf16", "none")),
    "param_dtype": st.sampled_from(("fp32", "bf16", "none")),
    "fsdp_version": st.sampled_from((1, 2)),
    "use_orig_params": st.booleans(),
    "autocast": st.booleans(),
    "fused": st.just(True),
    "foreach": st.just(False),
    "requires_gradient_sync": st.booleans(),
    "bucket_cap_mb": st.sampled_from((25, 50)),
}


@pytest.mark.parametrize("tool", ["accelerate", "torchtitan"])
@ONCE
@given(
    knobs=st.fixed_dictionaries({}, optional=TORCH_SETTINGS),
    strategy=st.sampled_from(("ddp", "zero1", "zero2", "zero3", "hsdp")),
    precision=st.sampled_from(("mixed-bf16", "fp32", "bf16-pure")),
    offload=st.sampled_from(("none", "cpu")),
)
def test_pytorchs_settings_read_back_to_the_same_bytes(tool, knobs, strategy, precision, offload, tmp_path):
    """The root is Accelerate's and the units are torchtitan's own, so both are named where they matter."""
    if tool == "torchtitan" and strategy != "ddp":
        knobs["wrap"] = "torchtitan"
    if tool == "accelerate" and strategy in ("zero3", "hsdp"):
        knobs.setdefault("reshard_after_forward", "true")
    kept = knobs.get("reshard_after_forward") == "false"
    assume(
        not (kept and offload == "cpu")
    )  # reads back as zero2, whose parameters an estimate keeps on the GPU
    job = job_of(
        knobs, model="llama-3-8b", framework="pytorch", strategy=strategy, gpus=16, gpus_per_node=8,
        precision=precision, offload_optimizer=offload, offload_params=offload, grad_accum=2,
    )  # fmt: skip
    part = written(job, tool)
    if part is not None:
        assert answer(read_back(part, tool, tmp_path, "llama-3-8b")) == answer(job)


def answer(job):
    """What the framework answers: bytes in every phase of every tier, and on the wire."""
    result, _ = evaluate(job)
    sent = sorted(
        (row.op, row.tensor, row.dtype, row.group_size, row.sent_bytes)
        for row in result.communication.collectives
    )
    memory = result.memory
    return memory.gpu.phases, memory.cpu.phases, memory.nvme.phases, sent
