"""torchtitan's TOML: the mesh's degrees, element types, batch and checkpointing, where they are not its defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocalc.writers.common import (
    Fragment,
    given_settings,
    heading,
    refused,
    replicas_of,
    unsaid_of,
)
from zerocalc.writers.plain import toml_text
from zerocalc.writers.torch_types import (
    TORCH_NAMES,
    TorchTypes,
    refuse_fsdp1,
    refuse_partial_offload,
    torch_types,
    whole_types,
)

if TYPE_CHECKING:
    from zerocalc.specs.job import Job

TOOL = "torchtitan"
_DEGREES = {
    "tp": "tensor_parallel_degree",
    "pp": "pipeline_parallel_degree",
    "cp": "context_parallel_degree",
    "ep": "expert_parallel_degree",
    "etp": "expert_tensor_parallel_degree",
}
_RESHARD = {True: "always", False: "never"}
_SAID = (
    "storage_dtype",
    "param_dtype",
    "reduce_dtype",
    "fsdp_version",
    "autocast",
    "wrap",
    "reshard_after_forward",
    "selective_policy",
    "selective_every",
)
_OPTIMIZERS = {"adam": "Adam", "adamw": "AdamW"}
_COMPUTE = ("fp32", "bf16")


def write(job: Job) -> Fragment:
    """The TOML of a job. Raises UsageError for what torchtitan's file cannot express."""
    refuse_fsdp1(job, TOOL)
    if job.strategy not in ("ddp", "zero2", "zero3", "hsdp"):
        raise refused(TOOL, f"it has no {job.strategy}", can="--emit deepspeed")
    sharded = job.strategy != "ddp"
    training = {
        **_training(job),
        **(_sharded_types(torch_types(job, TOOL)) if sharded else _whole_types(job)),
    }
    if refuse_partial_offload(job, TOOL):
        training["enable_cpu_offload"] = True
    optimizer = _optimizer(job)
    data = {
        "parallelism": _parallelism(job),
        "training": training,
        "activation_checkpoint": _checkpointing(job),
        "optimizer": optimizer,
    }
    unsaid, notes = unsaid_of(job, _said(training, optimizer)), _notes(job, training, sharded=sharded)
    return Fragment(toml_text(data, heading(job, unsaid, notes)), unsaid, notes)


def _parallelism(job: Job) -> dict[str, Any]:
    """The degrees. A sharding group includes the context-parallel ranks, torchtitan's shard degree does not."""
    p = job.parallelism
    if job.strategy == "ddp" and p.cp > 1:
        raise refused(TOOL, "ddp with cp: it shards over context-parallel ranks", can="--strategy zero3")
    if job.strategy != "ddp" and p.shard_size == 1:
        raise refused(
            TOOL,
            f"{job.strategy} over one rank: its shard degree 1 is ddp",
            can="more GPUs, or --strategy ddp",
        )
    replicas = p.data_parallel_size if job.strategy == "ddp" else replicas_of(job, TOOL)
    degrees: dict[str, Any] = {"data_parallel_shard_degree": p.data_parallel_size // replicas}
    if replicas > 1:
        degrees["data_parallel_replicate_degree"] = replicas
    degrees |= {key: getattr(p, word) for word, key in _DEGREES.items() if getattr(p, word) > 1}
    if (policy := _policy(job)) is not None:
        degrees["fsdp_reshard_after_forward"] = policy
    if p.pp > 1 and job.workload.micro_batch is not None:
        degrees["pipeline_parallel_microbatch_size"] = job.workload.micro_batch
    return degrees


def _checkpointing(job: Job) -> dict[str, str]:
    """The mode, and which operations or layers the selective one computes again."""
    keys: dict[str, str] = {"mode": job.workload.checkpointing}
    if keys["mode"] == "selective":
        settings = given_settings(job)
        layers = settings.get("selective_policy") == "layers"
        keys["selective_ac_option"] = str(settings.get("selective_every", 2)) if layers else "op"
    return keys


def _policy(job: Job) -> str | None:
    """Whether parameters are resharded after forward; by torchtitan's default they are, but not under pipelining."""
    reshard = given_settings(job).get("reshard_after_forward")
    if reshard is not None and not isinstance(reshard, bool):
        raise refused(TOOL, f"reshard_after_forward = {reshard}: it has always and never", can="--emit fsdp2")
    if job.strategy == "ddp":
        return None
    if job.strategy == "zero2":
        return _RESHARD[False]
    if reshard is None:
        return _RESHARD[True] if job.parallelism.pp > 1 else None
    return _RESHARD[reshard]


def _sharded_types(types: TorchTypes) -> dict[str, str]:
    """Types under FSDP's policy."""
    usual = {"dtype": "fp32", "mixed_precision_param": "bf16", "mixed_precision_reduce": "fp32"}
    keys = {}
    for (key, default), dtype in zip(usual.items(), types, strict=True):
        if dtype not in _COMPUTE:
            raise refused(TOOL, f"{key} {dtype}: it has float32 and bfloat16", can="--emit fsdp2")
        if dtype != default:
            keys[key] = TORCH_NAMES[dtype]
    return keys


def _whole_types(job: Job) -> dict[str, str]:
    """Types under plain data parallelism: one copy of the weights, with autocast or without."""
    types, autocast = whole_types(job, TOOL)
    if types.storage not in _COMPUTE or (autocast and "fp16" in types):
        raise refused(TOOL, f"ddp in {types.compute}: it has float32 and bfloat16", can="--emit accelerate")
    if types.storage == "bf16":
        return {"dtype": TORCH_NAMES["bf16"]}
    if not autocast:
        return {"mixed_precision_param": TORCH_NAMES["fp32"]}
    if job.parallelism.tp > 1 or job.parallelism.pp > 1:
        raise refused(TOOL, "autocast with tp or pp alone", can="--strategy zero3, or --precision fp32")
    return {}


def _training(job: Job) -> dict[str, Any]:
    """The batch; accumulation is said by the global batch, and under pipelining by the local one."""
    work = job.workload
    keys: dict[str, Any] = {}
    if work.micro_batch is not None and job.parallelism.pp > 1:
        keys["local_batch_size"] = work.micro_batch * work.grad_accum
    elif work.micro_batch is not None:
        keys["local_batch_size"] = work.micro_batch
        if work.grad_accum > 1:
            keys["global_batch_size"] = (
                work.micro_batch * work.grad_accum * job.parallelism.data_parallel_size
            )
    if work.seq_len is not None:
        keys["seq_len"] = work.seq_len
    return keys


def _optimizer(job: Job) -> dict[str, Any]:
    """Named where it is not torchtitan's own default, AdamW in one fused kernel."""
    keys = {"name": _OPTIMIZERS[job.optimizer.name]} if job.optimizer.name == "adam" else {}
    settings = given_settings(job)
    if "fused" in settings:
        keys["implementation"] = "fused"
    elif "foreach" in settings:
        keys["implementation"] = "for-loop"
    return keys


_WORDS = {"micro_batch": "local_batch_size", "grad_accum": "global_batch_size", "seq_len": "seq_len"}


def _said(training: dict[str, Any], optimizer: dict[str, Any]) -> set[str]:
    kernel = ("fused", "foreach") if "implementation" in optimizer else ()
    said = {"gpus", "checkpointing", *(f"settings.{name}" for name in (*_SAID, *kernel))}
    said |= {"optimizer"} if "name" in optimizer else set()
    said |= {"grad_accum"} if "local_batch_size" in training else set()
    return said | {word for word, key in _WORDS.items() if key in training}


def _notes(job: Job, training: dict[str, Any], *, sharded: bool) -> tuple[str, ...]:
    notes = []
    wrap = given_settings(job).get("wrap", "layers")
    if sharded and wrap == "root_only":
        raise refused(TOOL, f"wrap = {wrap}: it wraps embedding, layers and head", can="--emit fsdp2")
    if sharded and wrap != TOOL and job.framework == "pytorch":
        notes.append(
            "torchtitan wraps embedding, layers, and norm with head: --set wrap=torchtitan sizes that"
        )
    recomputed = given_settings(job).get("selective_policy", "attention")
    if job.workload.checkpointing == "selective" and recomputed == "attention":
        notes.append(
            "torchtitan computes again every second matrix multiplication or layer, never attention alone: "
            "--set selective_policy=matmuls sizes that"
        )
    if training.get("mixed_precision_reduce") == TORCH_NAMES["bf16"]:
        notes.append(
            "mixed_precision_reduce: releases of torchtitan that list only float32 refuse bfloat16; --reduce-dtype fp32 "
            "sizes that"
        )
    return tuple(notes)
