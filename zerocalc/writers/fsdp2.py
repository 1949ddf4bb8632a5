"""Python that calls PyTorch's fully_shard: the mesh, the policies, the units, and what the training loop must do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocalc.writers.common import (
    Fragment,
    given_settings,
    heading,
    refuse_degrees,
    refused,
    replicas_of,
    unsaid_of,
)
from zerocalc.writers.torch_types import (
    TORCH_NAMES,
    TorchTypes,
    refuse_fsdp1,
    refuse_partial_offload,
    torch_types,
)

if TYPE_CHECKING:
    from zerocalc.specs.job import Job

TOOL = "fully_shard"
_LAST_ONLY = {
    "requires_gradient_sync": ("set_requires_gradient_sync", "last"),
    "requires_all_reduce": ("set_requires_all_reduce", "last"),
    "reshard_after_backward": ("set_reshard_after_backward", "last"),
}
"""Settings that hold for all micro-steps but the last, and the calls that make them so."""
_SAID = (
    *("storage_dtype", "param_dtype", "reduce_dtype", "fsdp_version", "reshard_after_forward", "wrap"),
    *("pin_memory", *_LAST_ONLY),
)


def write(job: Job) -> Fragment:
    """The Python of a job. Raises UsageError for what fully_shard cannot do."""
    refuse_fsdp1(job, TOOL)
    refuse_degrees(job, TOOL, can="--emit torchtitan")
    if job.strategy not in ("zero2", "zero3", "hsdp"):
        raise refused(TOOL, f"it has no {job.strategy}: it shards parameters", can=_CAN[job.strategy])
    types = torch_types(job, TOOL)
    offloaded = refuse_partial_offload(job, TOOL)
    said = {"gpus", "grad_accum", *(f"settings.{name}" for name in _SAID)}
    if job.workload.checkpointing == "full":
        said.add("checkpointing")
    unsaid = unsaid_of(job, said)
    options = _options(job, types, offloaded=offloaded)
    lines = [
        *(f"# {line}" for line in heading(job, unsaid)),
        *_imports(job, options, offloaded=offloaded),
        "",
        "",
        *_shard(job, types, options),
        *_loop(job),
    ]
    return Fragment("\n".join(lines) + "\n", unsaid)


_CAN = {
    "ddp": "--emit accelerate, torchtitan or deepspeed",
    "zero1": "--emit deepspeed",
    "mics": "--emit deepspeed, or --strategy hsdp",
    "zeropp": "--emit deepspeed",
}


def _options(job: Job, types: TorchTypes, *, offloaded: bool) -> dict[str, str]:
    """Arguments of every fully_shard call, as they are written."""
    options = {"mesh": _mesh(job)}
    policy = []
    if types.casts:
        policy.append(f"param_dtype=torch.{TORCH_NAMES[types.compute]}")
    if types.reduce != types.compute:
        policy.append(f"reduce_dtype=torch.{TORCH_NAMES[types.reduce]}")
    if policy:
        options["mp_policy"] = f"MixedPrecisionPolicy({', '.join(policy)})"
    settings = given_settings(job)
    if offloaded:
        pinned = "" if settings.get("pin_memory", True) else "pin_memory=False"
        options["offload_policy"] = f"CPUOffloadPolicy({pinned})"
    reshard = False if job.strategy == "zero2" else settings.get("reshard_after_forward")
    if reshard is not None:
        options["reshard_after_forward"] = str(reshard)
    return options


def _mesh(job: Job) -> str:
    ranks, replicas = job.parallelism.world_size, replicas_of(job, TOOL)
    if replicas == 1:
        return f'init_device_mesh("cuda", ({ranks},))'
    return (
        f'init_device_mesh("cuda", ({replicas}, {ranks // replicas}), mesh_dim_names=("replicate", "shard"))'
    )


def _imports(job: Job, options: dict[str, str], *, offloaded: bool) -> list[str]:
    policy = "mp_policy" in options
    names = ["CPUOffloadPolicy"] * offloaded + ["MixedPrecisionPolicy"] * policy + ["fully_shard"]
    lines = ["import torch"]
    if job.workload.checkpointing == "full":
        lines.append(
            "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper"
        )
    lines.append("from torch.distributed.device_mesh import init_device_mesh")
    return [*lines, f"from torch.distributed.fsdp import {', '.join(names)}"]


def _shard(job: Job, types: TorchTypes, options: dict[str, str]) -> list[str]:
    """The function that shards a model: every layer, and the root with the rest."""
    storage = f"torch.{TORCH_NAMES[types.storage]}"
    lines = [
        "def shard(model, layers):",
        f'    """Shard a model and its stack of layers (model.model.layers, say); its weights rest in {storage}."""',
        f"    model.to({storage})",
        "    options = {",
        *(f'        "{name}": {value},' for name, value in options.items()),
        "    }",
    ]
    if job.workload.checkpointing == "full":
        lines += [
            "    for name, layer in layers.named_children():",
            "        layers.register_module(name, checkpoint_wrapper(layer))",
        ]
    if given_settings(job).get("wrap", "layers") == "torchtitan":
        raise refused(TOOL, "wrap = torchtitan: its units are torchtitan's own", can="--emit torchtitan")
    if given_settings(job).get("wrap", "layers") == "layers":
        lines += ["    for layer in layers.children():", "        fully_shard(layer, **options)"]
    return [*lines, "    return fully_shard(model, **options)"]


def _loop(job: Job) -> list[str]:
    """What the training loop does before each micro-step, where it accumulates in a way of its own."""
    accum = job.workload.grad_accum
    if accum == 1:
        return []
    settings = given_settings(job)
    calls = [call for name, call in _LAST_ONLY.items() if settings.get(name) is False]
    if not calls:
        return ["", "", f"# Every one of the {accum} micro-steps of an optimizer step reduces its gradients."]
    return [
        "",
        "",
        "def before_micro_step(model, micro_step):",
        f'    """Call before micro-step 0 to {accum - 1} of every optimizer step."""',
        f"    last = micro_step == {accum - 1}",
        *(f"    model.{method}({argument})" for method, argument in calls),
    ]
