"""Bars and curves for a terminal: told apart by their symbols, with or without colour, in ASCII too.

Nothing is computed here but columns; every number shown stands in the result.
"""

from __future__ import annotations

from math import log10
from typing import TYPE_CHECKING

from zerocalc.render import numbers
from zerocalc.render.document import Block, Cell, Chart, Facts, Line, Tone
from zerocalc.render.figures import (
    Bar,
    axis_end,
    bars_of,
    by_framework,
    kinds_in,
    machine,
    room_of,
    scale_of,
    series_label,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from zerocalc.render import Look
    from zerocalc.render.figures import Kind, Scale
    from zerocalc.results import Estimates
    from zerocalc.results.curve import Curve, CurvePoint

USUAL_WIDTH = 80
"""Columns where no terminal says otherwise."""
FEWEST_ROWS, ROWS_PER_DECADE = 12, 3.5
"""Lines of a plot: enough that amounts three apart stand on lines of their own."""
MARKS = {"ddp": "D", "zero1": "1", "zero2": "2", "zero3": "3", "hsdp": "H", "mics": "M", "zeropp": "+"}
SEVERAL = "*"
_TONES: dict[str, Tone] = {
    "params": "params", "grads": "grads", "optimizer_states": "optimizer_states",
    "activations": "activations", "logits": "logits", "transients": "transients",
}  # fmt: skip


def charts(result: Estimates, look: Look) -> Iterator[Block]:
    """The bars, then one plot per framework with its legend."""
    width = look.width or USUAL_WIDTH
    bars = bars_of(result)
    if bars:
        yield _bars(result, bars, look, width)
    several = len(by_framework(result.curves)) > 1
    for framework, curves in by_framework(result.curves).items():
        yield _plot(result, curves, framework if several else "", look, width)
        yield _legend(result, curves, look)


def _bars(result: Estimates, bars: Sequence[Bar], look: Look, width: int) -> Chart:
    """One line per bar: its label, its segments up to the axis' end, its sum and verdict."""
    end = axis_end(result, bars)
    label = max(len(bar.label) for bar in bars)
    sums = [
        f"{text}{'' if bar.fits is None else ' yes' if bar.fits else ' no '}"
        for bar, text in zip(bars, numbers.column([bar.bytes for bar in bars], look.units), strict=True)
    ]
    longest = max(map(len, sums))
    space = max(8, width - label - longest - 3)
    row = machine(result)
    room = None if row is None else room_of(row)
    line = None if room is None else min(space - 1, max(0, round(room / end * space)))
    lines = [
        (
            Cell(f"{bar.label:<{label}} "),
            *_drawn(bar, end, space, line, look),
            Cell(f"  {text:>{longest}}", "plain" if bar.fits is None else "good" if bar.fits else "bad"),
        )
        for bar, text in zip(bars, sums, strict=True)
    ]
    what = "Phases" if result.kind == "estimate" else "Peak"
    cut = f"; bars ending in {_cut_sign(look)} go on" if any(bar.bytes > end for bar in bars) else ""
    return Chart(
        f"{what} by kind of memory; {look.units} per GPU{cut}", (*lines, *_keys(result, bars, look, width))
    )


def _cut_sign(look: Look) -> str:
    return ">" if look.ascii else "»"


def _symbol(kind: Kind, look: Look) -> str:
    return kind.letter if look.ascii else kind.symbol


def _drawn(bar: Bar, end: int, space: int, line: int | None, look: Look) -> Line:
    """The bar's columns, the capacity line among them, runs of equal ones joined."""
    columns: list[Cell] = []
    reached = 0
    for segment in bar.segments:
        reached += segment.bytes
        upto = min(space, max(round(reached / end * space), len(columns) + 1))
        cell = Cell(_symbol(segment.kind, look), _TONES[segment.kind.name])
        columns += [cell] * (upto - len(columns))
    columns += [Cell(" ")] * (space - len(columns))
    if bar.bytes > end:
        columns[-1] = Cell(_cut_sign(look), "bad")
    if line is not None:
        columns[line] = Cell("|" if look.ascii else "│", "strong")
    return _joined(columns)


def _joined(columns: Sequence[Cell]) -> Line:
    joined: list[Cell] = []
    for cell in columns:
        if joined and joined[-1].tone == cell.tone:
            joined[-1] = Cell(joined[-1].text + cell.text, cell.tone)
        else:
            joined.append(cell)
    return tuple(joined)


def _keys(result: Estimates, bars: Sequence[Bar], look: Look, width: int) -> Iterator[Line]:
    """What each symbol means, as many on a line as there is room for."""
    entries = [
        (Cell(_symbol(kind, look) * 2, _TONES[kind.name]), Cell(f" {kind.label}")) for kind in kinds_in(bars)
    ]
    row = machine(result)
    if row is not None and row.capacity_bytes is not None:
        entries.append(
            (Cell("|" if look.ascii else "│", "strong"), Cell(f" {room_text(result, look.units)}"))
        )
    line: list[Cell] = []
    for entry in entries:
        length = sum(len(cell.text) for cell in line)
        if line and length + 2 + sum(len(cell.text) for cell in entry) > width:
            yield tuple(line)
            line = []
        line += [*([Cell("  ")] if line else []), *entry]
    yield tuple(line)


def room_text(result: Estimates, units: str) -> str:
    """The capacity line in words: `85.0 less 5.6 kept free`."""
    row = machine(result)
    assert row is not None
    assert row.capacity_bytes is not None
    kept = f" less {numbers.with_unit(row.reserve_bytes, units)} kept free" if row.reserve_bytes else ""
    return f"{numbers.with_unit(row.capacity_bytes, units)}{kept}"


def _plot(result: Estimates, curves: Sequence[Curve], framework: str, look: Look, width: int) -> Chart:
    """Peak over N_d, both axes logarithmic: a mark per point, the capacity as a line."""
    row = machine(result)
    room = None if row is None else room_of(row)
    scale = scale_of(curves, room, numbers.UNITS[look.units])
    rows = max(FEWEST_ROWS, round(ROWS_PER_DECADE * log10(scale.high / scale.low)))
    labels = {_row(at, rows): text for text, at in scale.ticks()}
    left = max(map(len, labels.values()))
    degrees = sorted({point.data_parallel_size for curve in curves for point in curve.points})
    step = max(2, min(6, (width - left - 4) // (len(degrees) + 1)))
    grid = _grid(curves, degrees, scale, (rows, step))
    if room is not None and room > 0:
        rule = "-" if look.ascii else "┄"
        at = _row(scale.at(room), rows)
        grid[at] = [rule if mark == " " else mark for mark in grid[at]]
    edge = "|" if look.ascii else "│"
    lines = [
        (Cell(f"{labels.get(index, ''):>{left}} {edge}"), Cell("".join(marks).rstrip()))
        for index, marks in enumerate(grid)
    ]
    title = (
        f"Peak over N_d{f', {framework}' if framework else ''}; {look.units} per GPU, both axes logarithmic"
    )
    names = [*map(str, degrees), "inf" if look.ascii else "∞"]
    return Chart(title, (*lines, _axis(names, step, left)))


def _row(at: float, rows: int) -> int:
    """The line of a plot, the highest value on the first."""
    return round((rows - 1) * (1 - at))


def _grid(
    curves: Sequence[Curve], degrees: Sequence[int], scale: Scale, size: tuple[int, int]
) -> list[list[str]]:
    """A column per degree, and one for what stays however many GPUs share it."""
    rows, step = size
    grid = [[" "] * (step * (len(degrees) + 1)) for _ in range(rows)]
    for curve in curves:
        marks = [(degrees.index(point.data_parallel_size), point.peak_bytes) for point in curve.points]
        if curve.constant_bytes:
            marks.append((len(degrees), curve.constant_bytes))
        for index, amount in marks:
            line, column = grid[_row(scale.at(amount), rows)], index * step + step // 2
            line[column] = mark_of(curve) if line[column] == " " else SEVERAL
    return grid


def mark_of(curve: Curve) -> str:
    """The letter that stands for a strategy's curve."""
    return MARKS.get(curve.strategy, curve.strategy[:1])


def _axis(names: Sequence[str], step: int, left: int) -> Line:
    """The degrees below their columns, as many as there is room for."""
    text = ""
    for index, name in enumerate(names):
        start = left + 2 + index * step + step // 2 - len(name) // 2
        if start > len(text) or not text:
            text = text.ljust(start) + name
    return (Cell(text, "faint"),)


def _legend(result: Estimates, curves: Sequence[Curve], look: Look) -> Facts:
    """Where each curve starts, is at the asked degree, and ends; then what the other marks mean."""
    degree = result.request["data_parallel_size"].value
    shown = [(curve.points[0], _at(curve, degree)) for curve in curves]
    peaks = [point.peak_bytes for both in shown for point in both]
    decimals = numbers.decimals_for([*peaks, *(curve.constant_bytes for curve in curves)], look.units)
    rows = []
    for curve, (first, at) in zip(curves, shown, strict=True):
        begins, now, stays = (
            numbers.in_units(amount, look.units, decimals)
            for amount in (first.peak_bytes, at.peak_bytes, curve.constant_bytes)
        )
        degrees = [numbers.count(point.data_parallel_size) for point in (first, at)]
        text = f"{begins} at N_d {degrees[0]}, {now} at {degrees[1]}; {stays} stays"
        rows.append((f"{mark_of(curve)} {series_label(curve.strategy, '')}", text))
    if len(curves) > 1:
        rows.append((SEVERAL, "several at one place"))
    row = machine(result)
    if row is not None and row.capacity_bytes is not None:
        rows.append(("--" if look.ascii else "┄┄", room_text(result, look.units)))
    return Facts("", tuple(rows))


def _at(curve: Curve, degree: int) -> CurvePoint:
    """The curve's point at a degree, which is always among them."""
    return next(point for point in curve.points if point.data_parallel_size == degree)
