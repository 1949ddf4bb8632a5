"""Stage 0: nothing is sharded. In 16 bits the optimizer keeps fp32 copies tensor by tensor; fp32 is plain DDP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocalc.frameworks.deepspeed.buckets import cut_after
from zerocalc.frameworks.deepspeed.collectives import collective
from zerocalc.frameworks.deepspeed.engine import TURN, UPCAST, Engine, Group
from zerocalc.frameworks.deepspeed.states import (
    buffer_term,
    shaped_states,
    sized,
    state_term,
    state_widths,
    step_counters,
)
from zerocalc.frameworks.terms import (
    BACKWARD_END,
    OPTIMIZER_STEP,
    Collective,
    Term,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

REDUCED_AT_ONCE = 500_000_000
"""Elements after which the engine reduces what it collected; not a setting."""


def terms(engine: Engine) -> Iterator[Term]:
    """What one rank holds."""
    for group in engine.groups:
        width = engine.bytes_of(group.dtype)
        yield state_term("params", sized(group.numel, width), group, state="params", falls=False)
        if group.trainable:
            yield from _states(engine, group)
            yield from _gradients(engine, group)
    yield from step_counters(engine, sum(len(group.params) for group in engine.trained))


def _states(engine: Engine, group: Group) -> Iterator[Term]:
    master = [("master_weights", engine.bytes_of(engine.master_dtype))] if engine.has_master else []
    for name, width in (*master, *state_widths(engine)):
        yield state_term(name, sized(group.numel, width), group, falls=False)
    for name, amount in shaped_states(engine, group.numel):
        yield state_term(name, amount, group, falls=False)


def _gradients(engine: Engine, group: Group) -> Iterator[Term]:
    live = (BACKWARD_END, UPCAST, OPTIMIZER_STEP)
    earlier = TURN if engine.grad_accum > 1 else ()
    width = engine.bytes_of(group.dtype)
    yield state_term(
        "grads", sized(group.numel, width), group, state="grads", phases=(*earlier, *live), falls=False
    )
    largest_call = max(_calls(group))
    flat = sized(largest_call, width)
    yield buffer_term("flat_grads", flat, (BACKWARD_END,), part=group.name)
    if engine.has_master:
        fp32 = sized(group.numel, engine.bytes_of(engine.master_dtype))
        yield buffer_term("fp32_grads", fp32, (UPCAST, OPTIMIZER_STEP), part=group.name)
    if engine.settings["optimizer_class"] == "adamw" and engine.shapes_known:
        largest = max(param.numel for param in group.params)
        work = sized(2 * largest, engine.bytes_of(engine.master_dtype))
        yield buffer_term("optimizer_temporaries", work, (OPTIMIZER_STEP,), part=group.name)


def _calls(group: Group) -> list[int]:
    return [sum(param.numel for param in bucket) for bucket in cut_after(group.params, REDUCED_AT_ONCE)]


def collectives(engine: Engine) -> Iterator[Collective]:
    """One all-reduce of all gradients at the end of accumulation, cut every half a billion elements."""
    for group in engine.trained:
        yield collective(
            engine, group, "all_reduce", "grads", _calls(group), dtype=engine.comm_dtype, phase="backward"
        )
        if not engine.has_master:
            yield collective(
                engine, group, "all_reduce", "gradient_norm", [1], dtype="fp32", phase="optimizer_step"
            )
