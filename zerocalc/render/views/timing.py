"""Seconds, always as bounds: what a step takes at least and at most, and what each link adds."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from zerocalc.render import numbers
from zerocalc.render.document import Block, Cell, Column, Note, Table, cells
from zerocalc.render.views.common import NONE, label_of, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zerocalc.results import StrategyResult
    from zerocalc.results_time import Crossover, Timing, Training

SECONDS_PER_DAY = 86400


def compared(rows: list[StrategyResult]) -> Iterator[Block]:
    """The bounds of every strategy's step side by side; nothing when none is timed."""
    timed = [(row, row.time) for row in rows if row.time is not None]
    if not timed:
        return
    several = len({row.framework for row, _ in timed}) > 1
    names = ["Strategy", *(["Framework"] if several else [])]
    figures = ("Step >=", "Step <=", "Exposed", "Tokens/s >=", "Tokens/s <=")
    columns = [*(Column(name, right=False) for name in names), *map(Column, figures)]
    body = tuple(
        cells(
            [Cell(label_of(row.strategy), "strong"), *([row.framework] if several else []), *_figures(time)]
        )
        for row, time in timed
    )
    yield Table("Time of one optimizer step; seconds, lower and upper bound", tuple(columns), body)
    yield _utilization(timed[0][1])


def crossed(rows: list[Crossover]) -> Iterator[Note]:
    """What the memory that a strategy saves costs in time, and from which batch on it is free."""
    several = len({row.framework for row in rows}) > 1
    for row in rows:
        name = f"{label_of(row.strategy)} ({row.framework})" if several else label_of(row.strategy)
        bounds = " to ".join(_signed(bound) for bound in (row.lower_difference_s, row.upper_difference_s))
        text = f"{bounds} s a step against {label_of(row.against)}"
        if row.tokens_to_hide is not None:
            text += f"; compute hides the wire from {numbers.count(ceil(row.tokens_to_hide))} tokens per GPU and step on"
        yield Note(text, name)


def _signed(duration: float) -> str:
    return f"{'+' if duration >= 0 else numbers.MINUS}{numbers.seconds(abs(duration))}"


def _figures(time: Timing) -> list[str]:
    step, tokens = time.step_s, time.tokens_per_s
    return [
        numbers.seconds(step.lower), numbers.seconds(step.upper), numbers.seconds(time.exposed_s),
        numbers.short(tokens.lower), numbers.short(tokens.upper),
    ]  # fmt: skip


def _utilization(time: Timing) -> Note:
    origin = time.origins.get("mfu", "default")
    return Note(
        f"lower: compute at peak and everything overlapped; upper: {numbers.short(100 * time.compute.utilization)} % of "
        f"peak ({origin}) and nothing overlapped",
        "Bounds",
    )


def in_full(time: Timing) -> Iterator[Block]:
    """One step's parts: compute, every link, what cannot be hidden, and the whole run where its tokens are given."""
    compute = time.compute.seconds
    body = [cells(["compute", NONE, numbers.seconds(compute.lower), numbers.seconds(compute.upper), NONE])]
    for link in time.links:
        hidden = NONE if link.tokens_to_hide is None else Cell(numbers.count(ceil(link.tokens_to_hide)))
        lower, upper = link.bandwidth_bytes_per_s.lower, link.bandwidth_bytes_per_s.upper
        rate = f"{numbers.rate(lower)}-{numbers.rate(upper)}" if lower != upper else numbers.rate(lower)
        bounds = [numbers.seconds(link.seconds.lower), numbers.seconds(link.seconds.upper)]
        body.append(cells([words(link.link), rate, *bounds, hidden]))
    step = [numbers.seconds(time.step_s.lower), numbers.seconds(time.step_s.upper)]
    body.append(cells([Cell("Step", "strong"), "", *(Cell(text, "strong") for text in step), ""]))
    columns = (Column("Part", right=False), *map(Column, ("GB/s", "At least", "At most", "Tokens to hide")))
    yield Table("Time of one optimizer step; seconds", columns, tuple(body), total=True)
    yield _utilization(time)
    yield Note(
        f"{numbers.seconds(time.exposed_s)} s cannot overlap; {numbers.short(time.tokens_per_s.lower)} to "
        f"{numbers.short(time.tokens_per_s.upper)} tokens/s over {numbers.count(time.tokens_per_step)} tokens a step",
        "Speed",
    )
    if time.training is not None:
        yield _training(time.training)


def _training(run: Training) -> Note:
    days = [numbers.short(bound / SECONDS_PER_DAY) for bound in (run.seconds.lower, run.seconds.upper)]
    hours = [numbers.short(bound) for bound in (run.gpu_hours.lower, run.gpu_hours.upper)]
    return Note(
        f"{numbers.count(run.tokens)} tokens take {days[0]} to {days[1]} days, {hours[0]} to {hours[1]} GPU-hours",
        "Training",
    )
