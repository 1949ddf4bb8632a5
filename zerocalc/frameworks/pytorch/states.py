"""Parameters, gradients, optimizer states and module buffers on one rank, whatever cuts the tensors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from zerocalc.formulas.fsdp import counter_bytes, temporary_bytes, tensor_bytes
from zerocalc.formulas.registry import Grouped, apply, apply_grouped
from zerocalc.frameworks.terms import (
    ALWAYS,
    FORWARD_BACKWARD,
    GRADS_LIVE,
    INITIALIZATION,
    OPTIMIZER_STEP,
    Evaluated,
    Plan,
    Term,
    Tier,
)
from zerocalc.layout import held_bytes
from zerocalc.optimizer_states import optimizer_lines
from zerocalc.units import dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from zerocalc.frameworks.pytorch.model import Setup, Types
    from zerocalc.layout import Buffer, Layout
    from zerocalc.rank import Part, RankView

COUNTER_BYTES = 4
ADAM = frozenset({"adamw", "adam", "adamw-bf16-moments"})
COUNTED_STEPS = frozenset({*ADAM, "adafactor", "adam8bit-torchao", "adam4bit"})
"""Optimizers that keep one fp32 step counter per tensor; the others count in Python or not at all."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How a rank holds tensors: a formula of bytes, and its inputs per group of equal tensors but the element type."""

    formula: Callable[..., Any]
    groups: tuple[tuple[int, Mapping[str, Any]], ...]

    def bytes_of(self, element_bytes: Any) -> Grouped:
        """Bytes of one state with elements of the given size."""
        return apply_grouped(
            self.formula, ((n, {**inputs, "element_bytes": element_bytes}) for n, inputs in self.groups)
        )


@dataclass(frozen=True, slots=True)
class Holding:
    """What one rank holds of a part: parameters and gradients by one cut, optimizer states by another."""

    part: Part
    params: Cut
    optimizer: Cut
    local: Layout
    """The rank's own tensors, as the optimizer sees them."""
    num_tensors: int
    """Tensors that the optimizer updates on this rank."""
    largest: int | None = None
    """Elements of the largest tensor that any rank updates, where ranks update different ones."""
    shards: int = 1
    """Ranks over which parameters and gradients are dealt."""
    optimizer_shards: int = 1
    falls: bool = False


def offload_tier(view: RankView) -> Tier:
    """Where states rest: offload moves parameters, gradients and optimizer states together, to the host only."""
    offload = view.job.offload
    return "gpu" if offload.params == offload.optimizer == "none" else "cpu"


def say_offload(view: RankView, answer: Plan, *, possible: bool) -> None:
    """Where the asked offload and what PyTorch can do differ."""
    offload = view.job.offload
    if not possible and offload.optimizer != "none":
        answer.warnings.append(
            f"pytorch cannot offload optimizer states under {view.strategy.name}: kept on the GPU"
        )
    if possible and offload_tier(view) == "cpu":
        answer.assumptions.append("CPU offload moves parameters, gradients and optimizer states together")
        if "nvme" in {offload.params, offload.optimizer}:
            answer.warnings.append("pytorch has no offload to NVMe: host memory instead")


def grads_phases(setup: Setup, *, reduced_in_turn: bool) -> tuple[str, ...]:
    """When gradients are live: from backward to the step, between micro-steps, and at rest unless they are freed."""
    if not setup.settings["set_to_none"]:
        return ALWAYS
    return (FORWARD_BACKWARD, *GRADS_LIVE) if setup.accum > 1 and reduced_in_turn else GRADS_LIVE


def params_term(holding: Holding, types: Types, tier: Tier = "gpu") -> Term:
    """A part's resting parameters."""
    return Term(
        name="params", state="params", part=holding.part.name, tier=tier, phases=(INITIALIZATION, *ALWAYS),
        sharded_over=holding.shards, falls=holding.falls and holding.shards > 1,
        amount=holding.params.bytes_of(types.resting_bytes(holding.part)),
    )  # fmt: skip


def grads_term(holding: Holding, types: Types, phases: tuple[str, ...], tier: Tier = "gpu") -> Term:
    """A trained part's gradients, in the parameters' own type."""
    return Term(
        name="grads", state="grads", part=holding.part.name, tier=tier, phases=phases,
        sharded_over=holding.shards, falls=holding.falls and holding.shards > 1,
        amount=holding.params.bytes_of(types.resting_bytes(holding.part)),
    )  # fmt: skip


def optimizer_terms(setup: Setup, holding: Holding, tier: Tier = "gpu") -> Iterator[Term]:
    """Every optimizer state of a trained part, and the step's temporaries.

    Parameters that rest in the master weights' type need no master copy.
    """
    for name, amount in _optimizer_amounts(setup, holding):
        yield Term(
            name=name, state="optimizer_states", part=holding.part.name, tier=tier, phases=ALWAYS,
            sharded_over=holding.optimizer_shards, falls=holding.falls, amount=amount,
        )  # fmt: skip
    if (copies := _temporaries(setup, holding)) is not None:
        yield Term(
            name="optimizer_temporaries",
            part=holding.part.name,
            tier=tier,
            phases=(OPTIMIZER_STEP,),
            amount=copies,
        )


def _temporaries(setup: Setup, holding: Holding) -> Evaluated | None:
    """Adam's: a copy of everything at once (foreach), two of the largest tensor one by one, none when fused."""
    settings, element = setup.settings, dtype_bytes(setup.types.storage)
    if settings["fused"] or setup.view.job.optimizer.name not in ADAM:
        return None
    sizes = [(n, tensor.numel) for tensor, n in holding.local.grouped()]
    num_params, copies = sum(n * size for n, size in sizes), 1
    if not settings["foreach"]:
        num_params, copies = holding.largest or max((size for _, size in sizes), default=0), 2
    return apply(temporary_bytes, num_params=num_params, element_bytes=element, copies=copies)


def _optimizer_amounts(setup: Setup, holding: Holding) -> Iterator[tuple[str, Evaluated]]:
    optimizer, types = setup.view.job.optimizer, setup.types
    if optimizer.needs_shapes and not holding.local.anonymous:
        part = replace(holding.part, layout=holding.local, num_params=holding.local.num_params)
        for line in optimizer_lines(part, optimizer, 1):
            if line.name != "master_weights":
                yield line.name, line.amount
    elif optimizer.needs_shapes or optimizer.row is None:
        yield "optimizer_states", holding.optimizer.bytes_of(_without_master(setup))
    else:
        own = {"moment": types.moment, "param": types.storage}
        for state in (*optimizer.precision_row.extra_states, *optimizer.row.states):
            yield state.name, holding.optimizer.bytes_of(dtype_bytes(own.get(state.dtype, state.dtype)))
    if optimizer.row is not None and optimizer.name in COUNTED_STEPS:
        yield "step", apply(counter_bytes, num_tensors=holding.num_tensors, counter_bytes_each=COUNTER_BYTES)


def _without_master(setup: Setup) -> Any:
    """K less the master weights, which are PyTorch's parameters themselves."""
    precision = setup.view.job.precision
    master = dtype_bytes(precision.master_dtype) if precision.master_dtype else 0
    return max(setup.view.job.optimizer.bytes_per_param - master, 0)


def buffers_terms(setup: Setup) -> Iterator[Term]:
    """The module's buffers, whole on every rank."""
    rows = [
        (
            buffer.count,
            {"num_params": buffer.numel, "element_bytes": held_bytes(buffer_dtype(buffer, setup.types))},
        )
        for buffer in setup.view.layout.buffers
    ]
    if rows:
        yield Term(name="buffers", phases=(INITIALIZATION, *ALWAYS), amount=apply_grouped(tensor_bytes, rows))


def buffer_dtype(buffer: Buffer, types: Types) -> str:
    """`model.to(dtype)` casts floating-point buffers too."""
    return types.storage if buffer.dtype in {"fp32", "bf16", "fp16"} else buffer.dtype


def whole(part: Part) -> Cut:
    """Every rank keeps the part as it is."""
    return Cut(tensor_bytes, ((1, {"num_params": part.num_params}),))


def initial_terms(setup: Setup) -> Iterator[Term]:
    """A model that is built on the GPU before it is sharded is whole there for a moment."""
    if setup.settings["init_device"] == "meta":
        return
    groups = [
        (1, {"num_params": part.num_params, "element_bytes": setup.types.resting_bytes(part)})
        for part in setup.view.parts
    ]
    yield Term(name="whole_model", phases=(INITIALIZATION,), amount=apply_grouped(tensor_bytes, groups))


def loaded_model(view: RankView, types: Types) -> Term:
    """A whole copy of the model in host memory, of every process that loads one before it is sharded."""
    whole = view.job.model.layout.num_params
    amount = apply(tensor_bytes, num_params=whole, element_bytes=dtype_bytes(types.storage))
    return Term(name="loaded_model", tier="cpu", phases=(INITIALIZATION,), amount=amount)
