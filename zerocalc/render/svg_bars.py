"""Bars as SVG: the kinds of memory side by side, against the line at the capacity."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from zerocalc.render import numbers
from zerocalc.render.figures import Bar, axis_end, bars_of, kinds_in, machine, room_of, ticks
from zerocalc.render.svg import LETTER, Drawing, tag, text, titled

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zerocalc.render.figures import Kind
    from zerocalc.results import Estimates, StrategyResult

BAR, ABOVE, ROW = 22, 22, 54
"""Pixels of a bar, of the words above it, and of both with the gap to the next."""
LEGEND_LINE = 22
BELOW = 24
"""Pixels for the axis' numbers."""
HALO = 3
"""Pixels on either side of the capacity line."""
FEW_TICKS, MANY_TICKS, NARROW = 4, 7, 400
HATCHES = {
    "params": "", "grads": "M0 8L8 0", "optimizer_states": "M0 4H8", "activations": "M4 0V8",
    "logits": "M0 0L8 8M0 8L8 0", "transients": "M3 3h2v2h-2z",
}  # fmt: skip
"""Lines or dots that tell a kind from its neighbours without colour."""


class _Frame(NamedTuple):
    """Where the bars stand, and what their length means."""

    end: int
    width: float
    top: float
    bottom: float
    units: str
    name: str
    row: StrategyResult | None
    """A result that knows the GPU's capacity."""

    def band(self) -> tuple[float, float] | None:
        """From what may be filled to the capacity: one place where nothing is kept free."""
        if self.row is None or self.row.capacity_bytes is None:
            return None
        return self.x(max(room_of(self.row) or 0, 0)), self.x(self.row.capacity_bytes)

    def x(self, amount: float) -> float:
        """Where so many bytes end."""
        return min(amount / self.end, 1.0) * self.width


def draw_bars(result: Estimates, units: str, *, width: int, name: str) -> Drawing:
    """A bar per strategy, or per phase of a single configuration."""
    bars = bars_of(result)
    legend, height = _legend(kinds_in(bars), width, name)
    top = height + 30
    bottom = top + ROW * len(bars)
    frame = _Frame(axis_end(result, bars), float(width - 2), top, bottom, units, name, machine(result))
    labels = numbers.column([bar.bytes for bar in bars], units)
    shapes = [_patterns(name), legend, _ticks(frame)]
    shapes += [_bar(bar, top + ROW * index, frame) for index, bar in enumerate(bars)]
    shapes.append(_capacity(result, frame, len(bars)))
    for index, (bar, label) in enumerate(zip(bars, labels, strict=True)):
        shapes.append(_label(bar, f"{label} {units}", top + ROW * index, frame))
    return Drawing("".join(shapes), frame.bottom + BELOW)


def _label(bar: Bar, amount: str, y: float, frame: _Frame) -> str:
    """Above the bar, its name and its sum with the verdict."""
    verdict = "" if bar.fits is None else ", fits" if bar.fits else ", does not fit"
    tone = "" if bar.fits is None else "good" if bar.fits else "bad"
    return text(bar.label, 0, y + 16, "strong") + text(amount + verdict, frame.width, y + 16, tone, "end")


def _bar(bar: Bar, y: float, frame: _Frame) -> str:
    """The segments side by side; a bar that goes on beyond the axis ends in a point."""
    shapes, reached = [], 0
    for segment in bar.segments:
        left, right = frame.x(reached), frame.x(reached + segment.bytes)
        reached += segment.bytes
        if right > left:
            words = f"{bar.label}: {segment.kind.label} {numbers.with_unit(segment.bytes, frame.units)}"
            shapes.append(
                titled(words, _segment(segment.kind, segment.bytes, (left, right), y + ABOVE, frame))
            )
    if bar.bytes > frame.end:
        half = BAR / 2 + 1
        tip = f"M{frame.width - 9:.0f} {y + ABOVE - 1:.0f}l9 {half:.0f}l-9 {half:.0f}h10v-{2 * half:.0f}z"
        shapes.append(tag("path", d=tip, class_="paper"))
    return "".join(shapes)


def _segment(kind: Kind, amount: int, ends: tuple[float, float], y: float, frame: _Frame) -> str:
    """One kind's rectangle, with its amount where there is room for it."""
    left, right = ends
    shape = tag("rect", x=left, y=y, width=right - left, height=BAR, fill=f"url(#{frame.name}-{kind.name})")
    inside = numbers.in_units(amount, frame.units, numbers.decimals_for([amount], frame.units))
    start, stop = _clear(left, right, frame.band())
    if stop - start > LETTER * (len(inside) + 1):
        shape += text(inside, (start + stop) / 2, y + BAR - 6, f"on-{kind.name}", "middle")
    return shape


def _clear(left: float, right: float, band: tuple[float, float] | None) -> tuple[float, float]:
    """The larger part of a segment that the capacity line leaves for words."""
    if band is None:
        return left, right
    before, after = (left, min(right, band[0] - HALO)), (max(left, band[1] + HALO), right)
    return max(before, after, key=lambda part: part[1] - part[0])


def _patterns(name: str) -> str:
    """A fill per kind: its colour, and its hatch."""
    made = []
    for kind, hatch in HATCHES.items():
        inside = tag("rect", width=8, height=8, class_=kind)
        inside += tag("path", d=hatch, class_="hatch") if hatch else ""
        made.append(
            tag("pattern", inside, id=f"{name}-{kind}", width=8, height=8, patternUnits="userSpaceOnUse")
        )
    return tag("defs", "".join(made))


def _legend(kinds: Iterable[Kind], width: int, name: str) -> tuple[str, float]:
    """Swatches and their names in as many lines as they need, and where the last line ends."""
    shapes, x, y = [], 0.0, 0.0
    for kind in kinds:
        wide = LETTER * len(kind.label) + 22
        if x + wide > width:
            x, y = 0.0, y + LEGEND_LINE
        shapes.append(tag("rect", x=x, y=y + 2, width=14, height=14, fill=f"url(#{name}-{kind.name})"))
        shapes.append(text(kind.label, x + 20, y + 14))
        x += wide + 14
    return "".join(shapes), y + LEGEND_LINE


def _ticks(frame: _Frame) -> str:
    unit = numbers.UNITS[frame.units]
    shapes = []
    for tick in ticks(frame.end / unit, most=MANY_TICKS if frame.width > NARROW else FEW_TICKS):
        x = frame.x(tick * unit)
        shapes.append(tag("line", x1=x, x2=x, y1=frame.top, y2=frame.bottom + 4, class_="grid"))
        anchor = "start" if x < LETTER else "end" if x > frame.width - 2 * LETTER else "middle"
        shapes.append(text(f"{tick:,.10g}", x, frame.bottom + 18, "tick", anchor))
    return "".join(shapes)


def capacity_label(result: Estimates, units: str) -> str:
    """`capacity 85.0 GB, 5.6 GB kept free`; empty where no GPU is given."""
    row = machine(result)
    if row is None or row.capacity_bytes is None:
        return ""
    kept = f", {numbers.with_unit(row.reserve_bytes, units)} kept free" if row.reserve_bytes else ""
    return f"capacity {numbers.with_unit(row.capacity_bytes, units)}{kept}"


def _capacity(result: Estimates, frame: _Frame, num_bars: int) -> str:
    """The line at the capacity beside every bar, so that it crosses no words, and the band that is kept free."""
    band = frame.band()
    if band is None:
        return ""
    left, right = band
    words = capacity_label(result, frame.units)
    long = LETTER * len(words)
    x, anchor = (
        (right - 4, "end")
        if right > long
        else (right + 4, "start")
        if right + long < frame.width
        else (0, "start")
    )
    shapes = [text(words, x, frame.top - 4, "capacity-label", anchor)]
    for index in range(num_bars):
        y = frame.top + ROW * index + ABOVE - 3
        high = BAR + 6
        shapes.append(tag("rect", x=left, y=y, width=right - left, height=high, class_="reserve"))
        for kind in ("capacity-halo", "capacity"):
            shapes += [
                tag("line", x1=at, x2=at, y1=y, y2=y + high, class_=kind) for at in sorted({left, right})
            ]
    return "".join(shapes)
