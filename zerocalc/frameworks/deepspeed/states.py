"""What every stage holds: optimizer states on a rank's share, buffers, other models, counters and norms."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from zerocalc.formulas.deepspeed import element_bytes
from zerocalc.formulas.registry import Applied, apply, apply_grouped
from zerocalc.formulas.states import state_bytes
from zerocalc.frameworks.deepspeed.engine import RESIDENT, STEADY, Engine, Group
from zerocalc.frameworks.terms import Evaluated, Term, Tier
from zerocalc.layout import Layout, Tensor, Unit
from zerocalc.optimizer_states import optimizer_lines
from zerocalc.units import dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def sized(count: int, width: Any) -> Applied:
    """Bytes of so many elements."""
    return apply(element_bytes, num_elements=count, bytes_per_element=width)


def state_widths(engine: Engine) -> list[tuple[str, Any]]:
    """Each optimizer state beside the master weights, and its bytes per element; none where shapes decide."""
    optimizer, precision = engine.view.job.optimizer, engine.view.job.precision
    if optimizer.needs_shapes:
        return []
    if optimizer.row is None:
        master = dtype_bytes(precision.master_dtype) if precision.master_dtype else 0
        rest = max(Fraction(0), Fraction(optimizer.bytes_per_param) - master)
        return [("optimizer_states", int(rest) if rest.denominator == 1 else rest)] if rest else []
    named = {"moment": engine.moment_dtype, "param": engine.master_dtype}
    return [(state.name, dtype_bytes(named.get(state.dtype, state.dtype))) for state in optimizer.row.states]


def shaped_states(engine: Engine, share_elements: int) -> Iterator[tuple[str, Evaluated]]:
    """States whose rule looks at shapes: they see the rank's share as one flat tensor, whatever the model's shapes."""
    optimizer = engine.view.job.optimizer
    if not optimizer.needs_shapes:
        return
    tensor = Tensor("share", (share_elements,), kind="matrix")
    part = replace(
        engine.view.parts[0], num_params=share_elements, layout=Layout((Unit("share", (tensor,)),))
    )
    for line in optimizer_lines(part, optimizer, 1):
        if line.name != "master_weights":
            yield line.name, line.amount


def state_term(
    name: str, amount: Evaluated, group: Group, *, tier: Tier = "gpu", phases: tuple[str, ...] = RESIDENT,
    state: Any = "optimizer_states", falls: bool = True,
) -> Term:  # fmt: skip
    """A model state on a rank's share of a group."""
    return Term(
        name=name, state=state, part=group.name, tier=tier, phases=phases, amount=amount,
        sharded_over=group.ranks if falls else 1, falls=falls and group.replicas == 1,
    )  # fmt: skip


def buffer_term(
    name: str, amount: Evaluated, phases: tuple[str, ...], *, part: str = "dense", tier: Tier = "gpu"
) -> Term:
    """Working memory: no model state."""
    return Term(name=name, amount=amount, phases=phases, part=part, tier=tier)


def scalars(name: str, count: int, width: int, *, tier: Tier = "gpu") -> Term:
    """Single numbers that stay on a rank."""
    return buffer_term(name, sized(count, width), STEADY, tier=tier)


def step_counters(engine: Engine, count: int, *, tier: Tier = "gpu") -> Iterator[Term]:
    """The Adam of torch counts steps in one fp32 scalar per tensor that it updates; DeepSpeed's own does not."""
    if engine.counts_steps and count:
        yield scalars("step_counters", count, 4, tier=tier)


def module_buffers(engine: Engine) -> Iterator[Term]:
    """Tensors that are held but not trained, such as rotary tables; never sharded, never cast."""
    rows: list[tuple[int, Mapping[str, Any]]] = [
        (buffer.count, {"num_elements": buffer.numel, "bytes_per_element": buffer.element_bytes})
        for buffer in engine.view.layout.buffers
    ]
    if rows:
        yield buffer_term("module_buffers", apply_grouped(element_bytes, rows), RESIDENT)


def other_models(engine: Engine) -> Iterator[Term]:
    """Further models: dealt over the ranks by stage 3, whole below it."""
    for part in engine.others:
        shards = int(part.shard_ranks) if engine.stage == 3 else 1
        yield Term(
            name="params", state="params", part=part.name, phases=RESIDENT, sharded_over=shards, falls=shards > 1,
            amount=apply(
                state_bytes, num_params=part.num_params, bytes_per_param=part.param_bytes, shards=shards
            ),
        )  # fmt: skip
