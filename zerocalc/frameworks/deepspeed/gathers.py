"""All gathers of an optimizer step at stage 3, from the trace of its micro-steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from zerocalc.frameworks.deepspeed.trace import Gather, Limits, Phase, Trace, micro_steps

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from zerocalc.frameworks.deepspeed.engine import Engine
    from zerocalc.frameworks.deepspeed.modules import Param


MOST_REPLAYED = 64
_REPLAYED: dict[Hashable, list[Trace]] = {}


@dataclass(frozen=True, slots=True)
class Gathers:
    """The gathers of a step: those of the first micro-step, and those of each that follows."""

    persistent: list[Param]
    traces: list[Trace]
    micro_steps: int
    secondary_group: int
    """Ranks that keep a secondary copy between them; 1 is off."""
    every: list[Param]

    def live_peak(self, phase: Phase) -> int:
        """The most elements gathered at once."""
        return max(trace.live_peak[phase] for trace in self.traces)

    @property
    def live_at_turn(self) -> int:
        """Elements still gathered when the forward pass ends."""
        return max(trace.live_at_turn for trace in self.traces)

    def largest_together(self, phase: Phase) -> int:
        """Elements of the largest gather of several tensors: their common buffer lives until the last is used."""
        together = (
            g for trace in self.traces for g in trace.gathers if g.phase == phase and len(g.params) > 1
        )
        return max((sum(param.numel for param in gather.params) for gather in together), default=0)

    @property
    def copied(self) -> list[Param]:
        """Parameters that have a secondary copy by the end of the step."""
        released = set().union(*(trace.released for trace in self.traces))
        return [param for param in self.every if param.name in released]

    def calls(self) -> Iterator[tuple[Gather, int]]:
        """Every gather and how often it happens in an optimizer step."""
        first, *rest = self.traces
        again = rest[0] if rest else None
        for gather in first.gathers:
            yield gather, 1
        if again is not None:
            for gather in again.gathers:
                yield gather, self.micro_steps - 1


def gathers_of(engine: Engine, persistent: list[Param]) -> Gathers:
    """Replay the step. Without shapes there is one tensor, gathered twice but for what the reuse distance keeps."""
    settings = engine.settings
    hpz = settings["zero_hpz_partition_size"] or 1
    every = [param for group in engine.groups for param in group.params]
    if engine.shapes_known:
        limits = Limits(
            prefetch=settings["stage3_prefetch_bucket_size"],
            max_live=settings["stage3_max_live_parameters"],
            max_reuse=settings["stage3_max_reuse_distance"],
            persistent=frozenset(param.name for param in persistent),
        )
        traces = _replayed(engine, limits, secondary=hpz > 1)
    else:
        traces = [_without_shapes(engine, every)] * min(engine.grad_accum, 2)
    return Gathers(persistent, traces, engine.grad_accum, hpz, every)


def _replayed(engine: Engine, limits: Limits, *, secondary: bool) -> list[Trace]:
    """The traces of a step.

    They follow from the layouts and few settings alone, so that a search over degrees, batches or budgets replays each
    once.
    """
    checkpointing, count = engine.view.job.workload.checkpointing == "full", min(engine.grad_accum, 2)
    key = (engine.layouts, limits, checkpointing, count, secondary)
    if key not in _REPLAYED:
        if len(_REPLAYED) >= MOST_REPLAYED:
            _REPLAYED.clear()
        _REPLAYED[key] = micro_steps(
            engine.root, limits, checkpointing=checkpointing, count=count, secondary=secondary
        )
    return _REPLAYED[key]


def _without_shapes(engine: Engine, every: list[Param]) -> Trace:
    """Half the reuse distance before the turn is kept through it: the last elements of forward come first in backward."""
    kept = min(engine.settings["stage3_max_reuse_distance"] // 2, sum(param.numel for param in every))
    trace = Trace()
    phases: tuple[Phase, ...] = ("forward", "backward")
    for phase in phases:
        dropped = kept if phase == "backward" else 0
        for param in every:
            if param.numel > dropped:
                left = replace(param, numel=param.numel - dropped)
                trace.gathers.append(Gather(phase, (left,), secondary=False))
        trace.live_peak[phase] = trace.live_at_turn = kept
    return trace
