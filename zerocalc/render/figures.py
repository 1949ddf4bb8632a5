"""What pictures show, before any of them is drawn: bars made of terms, curves over N_d, and how both are scaled.

Geometry only: every number that a picture names stands in the result.
"""

from __future__ import annotations

from math import ceil, floor, log, log10
from typing import TYPE_CHECKING, NamedTuple

from zerocalc.render.views.common import label_of, phase_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from zerocalc.results import Estimates, StrategyResult, TermResult
    from zerocalc.results.curve import Curve


class Kind(NamedTuple):
    """A kind of memory: its name, how it is called, and how a terminal draws it with and without symbols."""

    name: str
    label: str
    symbol: str
    letter: str


KINDS = {
    kind.name: kind
    for kind in (
        Kind("params", "params", "█", "P"),
        Kind("grads", "grads", "▓", "G"),
        Kind("optimizer_states", "optimizer states", "▒", "O"),
        Kind("activations", "activations", "░", "A"),
        Kind("logits", "logits", "▚", "L"),
        Kind("transients", "working memory", "·", "W"),
    )
}
_BY_NAME = (("logits", "logits"), ("activation", "activations"), ("outside_layers", "activations"),
            ("recomputed_layer", "activations"), ("layer_backward", "activations"))  # fmt: skip
"""Beginnings of the names of terms that are no model states; what none fits is working memory."""
MOST_DECADES = 7
MANY = 200
"""An axis over more than this has ten-fold ticks only."""
SLACK = 1 + 1e-9
"""So that a round number computed in floating point is still that number."""
CUT_AT = 3
"""Bars longer than so many times the room are cut, so that the others can be read."""


def kind_of(term: TermResult) -> str:
    """The kind of memory that a term is."""
    if term.state is not None:
        return term.state
    return next((kind for start, kind in _BY_NAME if term.name.startswith(start)), "transients")


class Segment(NamedTuple):
    """All of one kind in a bar."""

    kind: Kind
    bytes: int


class Bar(NamedTuple):
    """One bar: what it stands for, its segments, their sum, and whether it fits."""

    label: str
    segments: tuple[Segment, ...]
    bytes: int
    fits: bool | None
    row: StrategyResult


def bars_of(result: Estimates) -> list[Bar]:
    """A bar per strategy at its peak; of a single configuration, a bar per phase."""
    rows = [row for row in result.results if row.memory is not None]
    if result.kind == "estimate":
        return [_bar(phase_label(phase), row, phase) for row in rows for phase in _phases(row)]
    several = len({row.framework for row in rows}) > 1
    return [
        _bar(series_label(row.strategy, row.framework if several else ""), row, _peak_phase(row))
        for row in rows
    ]


def series_label(strategy: str, framework: str) -> str:
    """`ZeRO-3`, or `ZeRO-3 pytorch`."""
    return f"{label_of(strategy)} {framework}".rstrip()


def _phases(row: StrategyResult) -> Iterable[str]:
    return row.memory.gpu.phases if row.memory else ()


def _peak_phase(row: StrategyResult) -> str:
    return row.memory.gpu.peak_phase if row.memory else ""


def _bar(label: str, row: StrategyResult, phase: str) -> Bar:
    assert row.memory is not None
    live = [term for term in row.memory.gpu.terms if phase in term.phases]
    sums = {name: sum(term.bytes for term in live if kind_of(term) == name) for name in KINDS}
    segments = tuple(Segment(KINDS[name], total) for name, total in sums.items() if total)
    total = row.memory.gpu.phases.get(phase, 0)
    room = room_of(row)
    return Bar(label, segments, total, None if room is None else total <= room, row)


def room_of(row: StrategyResult) -> int | None:
    """Capacity less what is kept free: the line that a bar must not cross."""
    return None if row.capacity_bytes is None else row.capacity_bytes - row.reserve_bytes


def machine(result: Estimates) -> StrategyResult | None:
    """Any result that knows the GPU's capacity; it is the same in all."""
    return next((row for row in result.results if row.capacity_bytes is not None), None)


def axis_end(result: Estimates, bars: Sequence[Bar]) -> int:
    """Bytes at the end of the bars' axis: the longest bar, but no more than `CUT_AT` times the capacity."""
    longest = max((bar.bytes for bar in bars), default=1) or 1
    row = machine(result)
    if row is None or not row.capacity_bytes:
        return longest
    return max(min(longest, CUT_AT * row.capacity_bytes), row.capacity_bytes)


def kinds_in(bars: Iterable[Bar]) -> list[Kind]:
    """The kinds that any bar has, for the legend."""
    used = {segment.kind.name for bar in bars for segment in bar.segments}
    return [kind for name, kind in KINDS.items() if name in used]


def ticks(end: float, *, most: int = 6) -> list[float]:
    """Round numbers from 0 to `end`, at most so many."""
    rough = end / most
    unit = 10.0 ** floor(log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough)
    return [step * index for index in range(floor(end / step) + 1)]


class Scale(NamedTuple):
    """A logarithmic axis from `low` to `high` units of `unit` bytes."""

    unit: int
    low: float
    high: float

    def at(self, amount: float) -> float:
        """Where bytes stand, 0 at the low end and 1 at the high one; what is below the axis stands on it."""
        return min(log(max(amount / self.unit, self.low) / self.low) / log(self.high / self.low), 1.0)

    def ticks(self) -> list[tuple[str, float]]:
        """Round numbers on the axis, as they are written and where they stand; ten-fold ones where there are many."""
        first, last = floor(log10(self.low)), ceil(log10(self.high))
        factors = (1, 2, 5) if self.high / self.low <= MANY else (1,)
        marks = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
        inside = [mark for mark in marks if self.low / SLACK <= mark <= self.high * SLACK]
        return [(f"{mark:,.10g}", self.at(mark * self.unit)) for mark in inside]


def scale_of(curves: Iterable[Curve], room: int | None, unit: int) -> Scale:
    """The axis that holds the curves and the capacity, over no more than `MOST_DECADES`."""
    amounts = [point.peak_bytes / unit for curve in curves for point in curve.points]
    amounts += [room / unit] if room and room > 0 else []
    positive = [amount for amount in amounts if amount > 0] or [1.0]
    high = _round(max(positive), up=True)
    return Scale(unit, min(max(_round(min(positive), up=False), high / 10**MOST_DECADES), high / 2), high)


def _round(value: float, *, up: bool) -> float:
    """The nearest of 1, 2, 5, 10, … that is no smaller, or no larger."""
    power = 10.0 ** floor(log10(value))
    steps = [power * factor for factor in (1, 2, 5, 10)]
    return (
        next(s for s in steps if s >= value / SLACK)
        if up
        else next(s for s in reversed(steps) if s <= value * SLACK)
    )


def by_framework(curves: Iterable[Curve]) -> dict[str, list[Curve]]:
    """The curves of each framework, which are drawn together."""
    grouped: dict[str, list[Curve]] = {}
    for curve in curves:
        grouped.setdefault(curve.framework, []).append(curve)
    return grouped
