"""Accelerate's YAML: one of its plug-ins, FSDP, DEEPSPEED or none, over so many processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocalc.errors import UsageError
from zerocalc.writers import deepspeed
from zerocalc.writers.common import (
    Fragment,
    given_settings,
    group_size,
    heading,
    refuse_degrees,
    refused,
    replicas_of,
    unsaid_of,
)
from zerocalc.writers.plain import yaml_text
from zerocalc.writers.torch_types import refuse_partial_offload, torch_types, whole_types

if TYPE_CHECKING:
    from collections.abc import Callable

    from zerocalc.specs.job import Job

TOOL = "Accelerate"
_RESHARD = {"zero3": True, "zero2": False, "hsdp": True}
_FSDP1 = {"zero3": "FULL_SHARD", "zero2": "SHARD_GRAD_OP", "ddp": "NO_SHARD", "hsdp": "HYBRID_SHARD"}
_FSDP1_KEPT = {**_FSDP1, "zero3": "SHARD_GRAD_OP", "hsdp": "HYBRID_SHARD_ZERO2"}
"""FSDP1's words: resharding after forward, and keeping gathered parameters until backward."""
_TYPES_SAID = ("storage_dtype", "param_dtype", "reduce_dtype", "fsdp_version")
Plugin = tuple[dict[str, Any], set[str], tuple[str, ...]]
"""Keys of the file, the words and settings they say, and notes."""


def write(job: Job) -> Fragment:
    """The YAML of a job; the papers' ideal goes to the first plug-in that can express it.

    Raises UsageError for what none of the framework's plug-ins can.
    """
    plugins = _PLUGINS[job.framework]
    for plugin in plugins[:-1]:
        try:
            return _fragment(job, *plugin(job))
        except UsageError:
            continue
    return _fragment(job, *plugins[-1](job))


def _fragment(job: Job, keys: dict[str, Any], said: set[str], notes: tuple[str, ...]) -> Fragment:
    launch: dict[str, Any] = {"distributed_type": keys.pop("distributed_type")}
    machines = None if launch["distributed_type"] == "NO" else _machines(job)
    said |= {"gpus", *(["gpus_per_node"] if machines else [])}
    launch |= {"num_machines": machines} if machines else {}
    launch |= {"num_processes": job.parallelism.world_size, **keys}
    unsaid = unsaid_of(job, said)
    return Fragment(yaml_text(launch, heading(job, unsaid, notes)), unsaid, notes)


def _machines(job: Job) -> int | None:
    """How many nodes, where all of them are full or there is one."""
    per_node, world = job.parallelism.gpus_per_node, job.parallelism.world_size
    if per_node is None or (world > per_node and world % per_node):
        return None
    return max(1, world // per_node)


def _torch(job: Job) -> Plugin:
    """FSDP where something is sharded, else plain data parallelism."""
    version = given_settings(job).get("fsdp_version", 2)
    if job.strategy not in _FSDP1:
        raise refused(TOOL, f"FSDP has no {job.strategy}", can="--framework deepspeed, or --emit deepspeed")
    if version == 1:
        return _fsdp(job, _fsdp1(job))
    return _data_parallel(job) if job.strategy == "ddp" else _fsdp(job, _fsdp2(job))


def _fsdp(job: Job, section: dict[str, Any]) -> Plugin:
    offloaded = refuse_partial_offload(job, TOOL)
    said = {f"settings.{name}" for name in (*_TYPES_SAID, "use_orig_params")}
    if job.strategy != "ddp":
        said.add("settings.reshard_after_forward")
    if offloaded:
        section["fsdp_offload_params"] = True
    if job.workload.checkpointing == "full":
        section["fsdp_activation_checkpointing"] = True
        said.add("checkpointing")
    keys = {"distributed_type": "FSDP", "mixed_precision": _policy(job), "fsdp_config": section}
    if groups := _parallelism(job, section):
        keys["parallelism_config"] = groups
    return keys, said, _about_the_root(job, section)


def _about_the_root(job: Job, section: dict[str, Any]) -> tuple[str, ...]:
    """A note where Accelerate reshards one unit more than fully_shard does by itself."""
    resharded = section.get("fsdp_reshard_after_forward", False)
    if job.framework != "pytorch" or not resharded or "reshard_after_forward" in given_settings(job):
        return ()
    return ("Accelerate reshards the root after forward too: --set reshard_after_forward=true sizes that",)


def _fsdp2(job: Job) -> dict[str, Any]:
    """Accelerate hands one truth value to every unit, the root included."""
    reshard = given_settings(job).get("reshard_after_forward")
    if reshard is not None and not isinstance(reshard, bool):
        raise refused(TOOL, f"reshard_after_forward = {reshard}: it takes true or false", can="--emit fsdp2")
    value = _RESHARD[job.strategy] if reshard is None or job.strategy == "zero2" else reshard
    return {"fsdp_version": 2, "fsdp_reshard_after_forward": value}


def _fsdp1(job: Job) -> dict[str, Any]:
    settings = given_settings(job)
    if job.strategy == "hsdp" and group_size(job) != job.parallelism.gpus_per_node:
        raise refused(
            TOOL, "FSDP1's groups are the nodes", can="give --gpus-per-node, or leave fsdp_version at 2"
        )
    words = _FSDP1_KEPT if settings.get("reshard_after_forward") is False else _FSDP1
    section: dict[str, Any] = {"fsdp_version": 1, "fsdp_sharding_strategy": words[job.strategy]}
    if "use_orig_params" in settings:
        section["fsdp_use_orig_params"] = settings["use_orig_params"]
    return section


def _policy(job: Job) -> str:
    """FSDP's mixed precision: stored in fp32, computed and reduced in one type."""
    types = torch_types(job, TOOL)
    if types.storage != "fp32":
        raise refused(
            TOOL,
            f"weights stored in {types.storage}: the training script loads them",
            can="--emit fsdp2 or torchtitan",
        )
    if types.reduce != types.compute:
        raise refused(
            TOOL,
            f"gradients reduced in {types.reduce} while computing in {types.compute}: its policy has one type for both",
            can=f"give --reduce-dtype {types.compute}, or --emit fsdp2 or torchtitan",
        )
    return "no" if types.compute == "fp32" else types.compute


def _parallelism(job: Job, section: dict[str, Any]) -> dict[str, int]:
    """Replicas, sharding groups, tensor and context parallelism: FSDP2's mesh."""
    refuse_degrees(job, TOOL, allowed=("tp", "cp"), can="--emit torchtitan")
    p = job.parallelism
    if section["fsdp_version"] == 1 and (p.tp > 1 or p.cp > 1):
        raise refused(TOOL, "tp or cp with fsdp_version 1", can="leave fsdp_version at 2")
    replicas = 1 if section["fsdp_version"] == 1 else replicas_of(job, TOOL)
    if replicas == p.tp == p.cp == 1:
        return {}
    sizes = {"dp_replicate_size": replicas, "dp_shard_size": p.data_parallel_size // replicas}
    sizes |= {f"{word}_size": degree for word, degree in (("tp", p.tp), ("cp", p.cp)) if degree > 1}
    return {f"parallelism_config_{name}": size for name, size in sizes.items()}


def _data_parallel(job: Job) -> Plugin:
    """DistributedDataParallel: fp32 weights, with autocast or without."""
    refuse_degrees(job, TOOL, can="--emit torchtitan")
    types, autocast = whole_types(job, TOOL)
    if types.storage != "fp32":
        raise refused(
            TOOL,
            f"DDP with weights in {types.storage}: the training script loads them",
            can="--emit torchtitan",
        )
    word = (types.compute if types.casts else "bf16") if autocast else "no"
    kind = "NO" if job.parallelism.world_size == 1 else "MULTI_GPU"
    said = {f"settings.{name}" for name in ("autocast", *_TYPES_SAID)}
    return {"distributed_type": kind, "mixed_precision": word}, said, ()


def _deepspeed(job: Job) -> Plugin:
    """The few keys of Accelerate's DeepSpeed section; more is said in a DeepSpeed file that it names."""
    refuse_degrees(job, TOOL, can="--emit torchtitan")
    precise = deepspeed.precision_keys(job, TOOL)
    usual = job.precision.param_dtype
    beyond = sorted(name for name in given_settings(job) if name in deepspeed.PATHS)
    if job.strategy in ("mics", "zeropp", "hsdp"):
        beyond.append(job.strategy)
    if deepspeed.wire_types(job) != (usual, usual) or any("master" in key for key in precise):
        beyond.append("element types of their own for gradients or master weights")
    if beyond:
        raise refused(
            TOOL,
            f"its DeepSpeed section has no key for {', '.join(beyond)}",
            can="--emit deepspeed, and name that file in deepspeed_config_file",
        )
    section: dict[str, Any] = {"zero_stage": deepspeed.STAGES[job.strategy]}
    for name, tier in (("offload_optimizer", job.offload.optimizer), ("offload_param", job.offload.params)):
        deepspeed.refuse_shallow_nvme(job, tier, TOOL)
        section |= {f"{name}_device": tier} if tier != "none" else {}
        section |= {f"{name}_nvme_path": deepspeed.NVME_PATH} if tier == "nvme" else {}
    if job.workload.grad_accum > 1:
        section["gradient_accumulation_steps"] = job.workload.grad_accum
    keys = {
        "distributed_type": "DEEPSPEED",
        "mixed_precision": "no" if usual == "fp32" else usual,
        "deepspeed_config": section,
    }
    return keys, {"grad_accum", "grad_dtype"}, ()


_PLUGINS: dict[str, tuple[Callable[[Job], Plugin], ...]] = {
    "paper": (_torch, _deepspeed),
    "pytorch": (_torch,),
    "deepspeed": (_deepspeed,),
    "deepspeed-estimator": (_deepspeed,),
}
