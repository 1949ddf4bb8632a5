"""What a Megatron rank holds between steps: parameters and main gradients whole, optimizer states sharded or not."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from zerocalc.formulas.megatron import buffer_bytes, weight_gradient_bytes, workspace_bytes
from zerocalc.formulas.registry import Applied, Grouped, apply, apply_grouped
from zerocalc.formulas.states import state_bytes
from zerocalc.frameworks.megatron.buffers import buffer_elements
from zerocalc.frameworks.megatron.settings import grad_dtype
from zerocalc.frameworks.terms import ALWAYS, BACKWARD_END, OPTIMIZER_STEP, Term, Tier
from zerocalc.optimizer_states import optimizer_lines
from zerocalc.units import dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from zerocalc.layout import Tensor, Unit
    from zerocalc.rank import Part, RankView
    from zerocalc.strategies import State

KIB = 2**10
ENGINE_WORKSPACE = 4 * 2**20
"""TransformerEngine's own cuBLAS workspace, before Hopper."""


def state_terms(view: RankView, part: Part, settings: Mapping[str, Any]) -> Iterator[Term]:
    """A part's parameters, and where it is trained its main gradients and optimizer states."""
    extra = view.job.precision.extra_param_bytes
    if not part.trainable:
        held = apply(state_bytes, num_params=part.num_params, bytes_per_param=part.param_bytes, shards=1)
        yield _term(part, "params", "params", held)
        return
    elements = buffer_elements(view, part, settings)
    grads = grad_dtype(view.job, settings)
    shards = int(part.shard_ranks) if "optimizer_states" in view.strategy.shards else 1
    yield _term(part, "params", "params", _buffer(elements, part.param_bytes, 1))
    if extra:
        copies = apply(state_bytes, num_params=part.num_linear_params, bytes_per_param=extra, shards=1)
        yield _term(part, "params", "weight_copies", copies)
    yield _term(part, "grads", "grads", _buffer(elements, dtype_bytes(grads), 1))
    if needs_fp32_copy(view, grads, settings):
        copy = _buffer(elements, dtype_bytes("fp32"), shards)
        yield _term(part, "grads", "fp32_grads", copy, phases=(OPTIMIZER_STEP,), shards=shards)
    tier: Tier = "gpu" if view.job.offload.optimizer == "none" else view.job.offload.optimizer
    for name, amount in _optimizer_states(view, part, elements, shards, settings):
        yield _term(part, "optimizer_states", name, amount, shards=shards, tier=tier)


def _term(
    part: Part,
    state: State,
    name: str,
    amount: Applied | Grouped,
    *,
    phases: tuple[str, ...] = ALWAYS,
    shards: int = 1,
    tier: Tier = "gpu",
) -> Term:
    return Term(
        name=name, state=state, part=part.name, amount=amount, phases=phases, tier=tier,
        sharded_over=shards, falls=shards > 1,
    )  # fmt: skip


def _buffer(elements: int, element_bytes: int | Fraction, shards: int) -> Applied:
    return apply(buffer_bytes, num_elements=elements, element_bytes=element_bytes, shards=shards)


def needs_fp32_copy(view: RankView, grads: str, settings: Mapping[str, Any]) -> bool:
    """Whether the step makes fp32 gradients of 16-bit ones: only the precision-aware optimizer reads them as they are."""
    return (
        grads != "fp32"
        and view.job.precision.master_dtype == "fp32"
        and not settings["use_precision_aware_optimizer"]
    )


def _optimizer_states(
    view: RankView, part: Part, elements: int, shards: int, settings: Mapping[str, Any]
) -> Iterator[tuple[str, Applied | Grouped]]:
    """Master weights and moments of one rank's share: one flat K, or tensor by tensor where shapes matter."""
    optimizer = view.job.optimizer
    if optimizer.needs_shapes and part.shapes_known:
        for line in optimizer_lines(part, optimizer, shards):
            yield line.name, line.amount
        return
    per_param = optimizer.bytes_per_param + _lowered(view, settings)
    yield "optimizer_states", _buffer(elements, per_param, shards)


def _lowered(view: RankView, settings: Mapping[str, Any]) -> Fraction:
    """By how many bytes per parameter the precision-aware optimizer changes K."""
    if not settings["use_precision_aware_optimizer"]:
        return Fraction(0)
    precision = view.job.precision
    master = dtype_bytes(settings["main_params_dtype"])
    if (
        settings["store_param_remainders"]
        and settings["main_params_dtype"] == "fp32"
        and precision.param_dtype == "bf16"
    ):
        master -= dtype_bytes("bf16")
    usual = (dtype_bytes(precision.master_dtype) if precision.master_dtype else 0) + 2 * dtype_bytes(
        precision.moment_dtype
    )
    moments = dtype_bytes(settings["exp_avg_dtype"]) + dtype_bytes(settings["exp_avg_sq_dtype"])
    return Fraction(master + moments - usual)


def workspace_term(settings: Mapping[str, Any]) -> Term:
    """Workspaces of cuBLAS for the two threads that multiply matrices, forward's and backward's, and TransformerEngine's."""
    amount = apply(
        workspace_bytes,
        handles=2,
        bytes_per_handle=settings["cublas_workspace_kib"] * KIB,
        engine_bytes=ENGINE_WORKSPACE if settings["transformer_impl"] == "transformer_engine" else 0,
    )
    return Term(name="workspaces", phases=ALWAYS, amount=amount)


def working_terms(view: RankView, settings: Mapping[str, Any]) -> Iterator[Term]:
    """Weight gradients outside the main gradients: placeholders that stay, and the embedding's before it is added."""
    trained = [part for part in view.parts if part.trainable and part.name in {"dense", "expert"}]
    if not trained or not view.shape_known:
        return
    element = dtype_bytes(view.job.precision.param_dtype)
    fused = settings["gradient_accumulation_fusion"] and settings["transformer_impl"] == "transformer_engine"
    shapes = sorted({shape for unit in view.layout.units for shape in weight_shapes(unit)})
    if fused and shapes and grad_dtype(view.job, settings) == "fp32":
        groups = [
            (1, {"rows": rows, "columns": columns, "element_bytes": element}) for rows, columns in shapes
        ]
        yield Term(
            name="weight_gradient_placeholders",
            phases=ALWAYS,
            amount=apply_grouped(weight_gradient_bytes, groups),
        )
    embedding = [t for t, _ in view.layout.grouped() if t.kind == "embedding"]
    if embedding:
        groups = [
            (1, {"rows": t.shape[0], "columns": t.shape[1], "element_bytes": element}) for t in embedding
        ]
        yield Term(
            name="embedding_gradient",
            phases=(BACKWARD_END,),
            amount=apply_grouped(weight_gradient_bytes, groups),
        )


def weight_shapes(unit: Unit) -> Iterator[tuple[int, int]]:
    """The matrices a unit's linear layers multiply by, on this rank, as [out, in].

    Megatron packs queries, keys and values into one matrix, gate and up into another: whatever one module splits by
    rows over the same input. Experts count once, as every expert of a layer has the same shape.
    """
    packed: dict[tuple[str, int], int] = {}
    for tensor in unit.tensors:
        if tensor.kind in {"embedding", "position"} or len(tensor.shape) < 2:
            continue
        out, into = tensor.shape[-2:] if not tensor.transposed else tensor.shape[-1:-3:-1]
        if _split_by_rows(tensor):
            module = tensor.module.rpartition(".")[0]
            packed[module, into] = packed.get((module, into), 0) + out
        else:
            yield out, into
    for (_, into), out in packed.items():
        yield out, into


def _split_by_rows(tensor: Tensor) -> bool:
    """Whether tensor parallelism splits the matrix's output dimension."""
    rows = len(tensor.shape) - (1 if tensor.transposed else 2)
    return tensor.tp_axis == rows
