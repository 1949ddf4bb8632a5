"""One rank of PyTorch's strategies: wrapped as a user wraps them, stepped three times, the third one recorded."""

from __future__ import annotations

import gc
import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    FSDPModule,
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import Shard
from torch.nn.parallel import DistributedDataParallel

from tests.live.models import build, layers_of, loss_of
from tests.live.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from tests.live.cases import Case

STEPS = 3
SETTLING_SECONDS = 0.1
_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_FSDP1 = {
    "zero3": ShardingStrategy.FULL_SHARD, "zero2": ShardingStrategy.SHARD_GRAD_OP, "ddp": ShardingStrategy.NO_SHARD,
    "hsdp": ShardingStrategy.HYBRID_SHARD,
}  # fmt: skip


@dataclass
class Wrapped:
    """A model ready to train, its optimizer, and what surrounds each micro-step."""

    model: torch.nn.Module
    optimizer: Any
    around: Callable[[bool], AbstractContextManager[Any]]
    """Called with whether the micro-step is the last before the optimizer's step."""


def run(case: Case, rank: int) -> dict[str, Any]:
    """What this rank holds after a steady step, gradients kept, and what it sent in it."""
    mesh = _mesh(case)
    recorder = Recorder()
    with recorder:
        wrapped = _wrap(case, mesh)
        for step in range(STEPS):
            wrapped.optimizer.zero_grad(set_to_none=True)
            if step == STEPS - 1:
                recorder.start_step(watch=case.watch)
            _step(case, wrapped, recorder)
    settle()
    held = recorder.held({**_owners(wrapped), "meshes": _mesh_tensors()})
    del held["meshes"], wrapped  # which ranks are where is no part of the job
    gc.collect()
    return {"held": held, "sent": recorder.sent, "peaks": recorder.peaks}


def _step(case: Case, wrapped: Wrapped, recorder: Recorder) -> None:
    for micro in range(case.grad_accum):
        with wrapped.around(micro == case.grad_accum - 1):
            recorder.phase = "forward"
            loss = loss_of(wrapped.model, case.model, seed=micro)
            recorder.phase = "backward"
            loss.backward()
            del loss
    recorder.phase = "optimizer_step"
    wrapped.optimizer.step()


def settle() -> None:
    """Wait until gloo's threads have let go of the messages of the step."""
    dist.barrier()
    time.sleep(SETTLING_SECONDS)
    gc.collect()


def _mesh_tensors() -> list[torch.Tensor]:
    """The index tensors of every mesh, those that wrapping made among them."""
    meshes = [each for each in gc.get_objects() if isinstance(each, DeviceMesh)]
    return [value for mesh in meshes for value in vars(mesh).values() if isinstance(value, torch.Tensor)]


def _owners(wrapped: Wrapped) -> dict[str, Iterable[torch.Tensor]]:
    parameters = list(wrapped.model.parameters())
    owners: dict[str, Any] = {
        "params": parameters,
        "grads": [p.grad for p in parameters if p.grad is not None],
        "buffers": list(wrapped.model.buffers()),
    }
    inner = getattr(wrapped.optimizer, "optim", wrapped.optimizer)
    for state in inner.state.values():
        for name, value in state.items():
            if isinstance(value, torch.Tensor):
                owners.setdefault(name, []).append(value)
    return owners


def _wrap(case: Case, mesh: DeviceMesh | None) -> Wrapped:
    settings = case.settings
    model = build(case.model, "bf16" if case.words.get("precision") == "bf16-pure" else "fp32")
    if settings.get("fsdp_version") == 1:
        return _fsdp1(case, model, mesh)
    if case.strategy in {"ddp", "zero1"}:
        return _ddp(case, model)
    return _fsdp2(case, model, mesh)


def _mesh(case: Case) -> DeviceMesh | None:
    """The ranks, in replicas of sharding groups under HSDP."""
    if case.strategy in {"ddp", "zero1"}:
        return None
    if case.strategy == "hsdp":
        shards = case.words["shard_size"]
        return init_device_mesh("cpu", (case.world // shards, shards), mesh_dim_names=("replicate", "shard"))
    return init_device_mesh("cpu", (case.world,))


def _adamw(case: Case, parameters: Iterable[torch.Tensor]) -> torch.optim.Optimizer:
    fused = case.settings.get("fused", False)
    return torch.optim.AdamW(parameters, lr=1e-4, fused=fused, foreach=case.settings.get("foreach", False))


def _ddp(case: Case, model: torch.nn.Module) -> Wrapped:
    settings = case.settings
    options = ("gradient_as_bucket_view", "bucket_cap_mb", "broadcast_buffers", "find_unused_parameters")
    wrapped = DistributedDataParallel(model, **{name: settings[name] for name in options if name in settings})
    if settings.get("ddp_comm_hook") == "bf16_compress":
        wrapped.register_comm_hook(None, _bf16_compress)
    around = _no_sync_before_last(wrapped) if settings.get("no_sync") else _nothing
    if case.strategy == "ddp":
        return Wrapped(wrapped, _adamw(case, model.parameters()), around)
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.AdamW, lr=1e-4, foreach=False,
        parameters_as_bucket_view=settings.get("parameters_as_bucket_view", False),
    )  # fmt: skip
    return Wrapped(wrapped, optimizer, around)


def _bf16_compress(_, bucket):  # torch refuses annotations that are text
    """What torch's own hook of this name does, which refuses gloo."""
    small = bucket.buffer().to(torch.bfloat16).div_(dist.get_world_size())
    future = dist.all_reduce(small, async_op=True).get_future()
    return future.then(lambda done: bucket.buffer().copy_(done.value()[0]))


def _no_sync_before_last(wrapped: Any) -> Callable[[bool], AbstractContextManager[Any]]:
    return lambda last: nullcontext() if last else wrapped.no_sync()


def _nothing(last: bool) -> AbstractContextManager[Any]:
    return nullcontext()


def _fsdp2(case: Case, model: torch.nn.Module, mesh: DeviceMesh | None) -> Wrapped:
    settings = case.settings
    asked = False if case.strategy == "zero2" else settings.get("reshard_after_forward")
    options: dict[str, Any] = {
        "mesh": mesh,
        "mp_policy": MixedPrecisionPolicy(
            param_dtype=_TYPES.get(settings.get("param_dtype")),
            reduce_dtype=_TYPES.get(settings.get("reduce_dtype")),
        ),
        **({} if asked is None else {"reshard_after_forward": asked}),
    }
    if settings.get("shard_placement_fn") == "experts_dim1":
        options["shard_placement_fn"] = lambda parameter: Shard(1) if parameter.ndim == 3 else None
    for unit, own in _fsdp2_units(case, model):
        fully_shard(unit, **{**options, **own})
    for module in model.modules():
        if isinstance(module, FSDPModule):
            # gloo knows no average: sum, then divide; the bytes are the same.
            module.set_force_sum_reduction_for_comms(True)
    return Wrapped(model, _adamw(case, model.parameters()), lambda last: _fsdp2_micro_step(case, model, last))


def _fsdp2_units(case: Case, model: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """What becomes a unit, in order, with options of its own: as torchtitan, the layers, or the whole model alone."""
    wrap = case.settings.get("wrap", "layers")
    if wrap == "torchtitan":
        yield model.model.embed_tokens, {}
    if wrap != "root_only":
        yield from ((layer, {}) for layer in layers_of(model, case.model))
    if wrap == "torchtitan":
        last = {"reshard_after_forward": case.settings.get("reshard_after_forward", False)}
        yield [model.model.norm, model.lm_head], last
    yield model, {}


def _fsdp2_micro_step(case: Case, model: Any, last: bool) -> AbstractContextManager[Any]:
    settings = case.settings
    model.set_is_last_backward(last)
    if not settings.get("requires_gradient_sync", True):
        model.set_requires_gradient_sync(last)
    if not settings.get("requires_all_reduce", True):
        model.set_requires_all_reduce(last)
    if not settings.get("reshard_after_backward", True):
        model.set_reshard_after_backward(last)
    return nullcontext()


def _fsdp1(case: Case, model: torch.nn.Module, mesh: DeviceMesh | None) -> Wrapped:
    settings = case.settings
    layer = type(layers_of(model, case.model)[0])
    types = {name: _TYPES[settings[name]] for name in ("param_dtype", "reduce_dtype") if name in settings}
    wrapped = FullyShardedDataParallel(
        model,
        auto_wrap_policy=None if settings.get("wrap") == "root_only" else ModuleWrapPolicy({layer}),
        sharding_strategy=_FSDP1[case.strategy],
        mixed_precision=MixedPrecision(**types) if types else None,
        use_orig_params=settings.get("use_orig_params", False),
        device_id=torch.device("cpu"),
        device_mesh=mesh if case.strategy == "hsdp" else None,
    )
    around = _no_sync_before_last(wrapped) if settings.get("no_sync") else _nothing
    return Wrapped(wrapped, _adamw(case, wrapped.parameters()), around)
