"""Curves as SVG: peak memory over the data-parallel degree, both axes logarithmic."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import log2
from typing import TYPE_CHECKING, NamedTuple

from zerocalc.render import numbers
from zerocalc.render.figures import machine, room_of, scale_of, series_label
from zerocalc.render.svg import BOLD, LETTER, Drawing, tag, text, titled
from zerocalc.render.svg_bars import capacity_label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zerocalc.render.figures import Scale
    from zerocalc.results import Estimates
    from zerocalc.results.curve import Curve, CurvePoint

PLOT = 300
DASHES = ("", "7 4", "2 4", "10 3 2 3", "5 2", "1 3", "12 4")
"""One per curve, in order, so that lines differ without colour."""
LABEL_LINE = 16.0


class _Frame(NamedTuple):
    """The inside of the plot: its corners, its scale, the degrees at its sides."""

    left: float
    right: float
    top: float
    bottom: float
    scale: Scale
    first: int
    last: int

    def x(self, degree: int) -> float:
        """Where a degree stands."""
        span = max(log2(self.last / self.first), 1.0)
        return self.left + log2(degree / self.first) / span * (self.right - self.left)

    def y(self, amount: float) -> float:
        """Where so many bytes stand."""
        return self.bottom - self.scale.at(amount) * (self.bottom - self.top)

    def across(self, y: float, class_: str) -> str:
        """A line from side to side."""
        return tag("line", x1=self.left, x2=self.right, y1=y, y2=y, class_=class_)


def draw_curves(result: Estimates, curves: Sequence[Curve], units: str, *, width: int) -> Drawing:
    """One framework's curves, what stays of each, the capacity line, and the degree that was asked for."""
    row = machine(result)
    degrees = sorted({point.data_parallel_size for curve in curves for point in curve.points})
    scale = scale_of(curves, None if row is None else room_of(row), numbers.UNITS[units])
    left = LETTER * max(len(words) for words, _ in scale.ticks()) + 10
    right = width - BOLD * max(len(series_label(curve.strategy, "")) for curve in curves) - 14
    frame = _Frame(left, right, 24.0, 24.0 + PLOT, scale, degrees[0], degrees[-1])
    shapes = [text(f"{units} per GPU", 0, 12, "tick"), *_axes(frame, degrees)]
    shapes += [*_asked(result, frame), *_capacity(result, frame, units)]
    ends = _apart([frame.y(curve.points[-1].peak_bytes) for curve in curves])
    for index, (curve, end) in enumerate(zip(curves, ends, strict=True)):
        shapes.append(_curve(curve, frame, index, end, units))
    return Drawing("".join(shapes), frame.bottom + 44)


def _axes(frame: _Frame, degrees: Sequence[int]) -> Iterator[str]:
    """Lines at round amounts, degrees below as far as there is room for them."""
    for words, at in frame.scale.ticks():
        y = frame.bottom - at * (frame.bottom - frame.top)
        yield frame.across(y, "grid") + text(words, frame.left - 6, y + 4, "tick", "end")
    reached = 0.0
    for degree in degrees:
        half = LETTER * len(str(degree)) / 2 + 2
        if frame.x(degree) - half >= reached:
            yield text(str(degree), frame.x(degree), frame.bottom + 18, "tick", "middle")
            reached = frame.x(degree) + half
    yield text(
        "data-parallel degree N_d", (frame.left + frame.right) / 2, frame.bottom + 38, "tick", "middle"
    )


def _asked(result: Estimates, frame: _Frame) -> Iterator[str]:
    degree = result.request["data_parallel_size"].value
    x = frame.x(degree)
    yield tag("line", x1=x, x2=x, y1=frame.top, y2=frame.bottom, class_="asked")
    yield text(f"N_d {degree}", x, 12, "strong", "end" if x > (frame.left + frame.right) / 2 else "start")


def _capacity(result: Estimates, frame: _Frame, units: str) -> Iterator[str]:
    """The line at the capacity, and the band below it that is kept free."""
    row = machine(result)
    if row is None or row.capacity_bytes is None:
        return
    high, low = frame.y(row.capacity_bytes), frame.y(max(room_of(row) or 0, 0))
    yield tag(
        "rect", x=frame.left, y=high, width=frame.right - frame.left, height=low - high, class_="reserve"
    )
    yield from (frame.across(y, "capacity") for y in sorted({high, low}))
    yield text(capacity_label(result, units), frame.right - 4, high - 5, "capacity-label", "end")


def _apart(places: Sequence[float]) -> list[float]:
    """The places moved down until no two labels overlap."""
    moved = list(places)
    order = sorted(range(len(places)), key=lambda index: places[index])
    for above, below in pairwise(order):
        moved[below] = max(moved[below], moved[above] + LABEL_LINE)
    return moved


def _curve(curve: Curve, frame: _Frame, index: int, label_y: float, units: str) -> str:
    """The line through the points, the points, what stays, and the name at the end."""
    label, series = series_label(curve.strategy, ""), f"series-{index % len(DASHES)}"
    path = "L".join(f"{frame.x(p.data_parallel_size):.1f} {frame.y(p.peak_bytes):.1f}" for p in curve.points)
    dash = DASHES[index % len(DASHES)] or None
    shapes = [tag("path", d=f"M{path}", class_=f"curve {series}", stroke_dasharray=dash)]
    if curve.constant_bytes:
        stays = f"{label}: {numbers.with_unit(curve.constant_bytes, units)} stays"
        shapes.append(titled(stays, frame.across(frame.y(curve.constant_bytes), f"floor {series}")))
    shapes += [_point(label, point, frame, series, units) for point in curve.points]
    return "".join([*shapes, text(label, frame.right + 8, label_y + 4, f"strong label {series}")])


def _point(label: str, point: CurvePoint, frame: _Frame, series: str, units: str) -> str:
    words = f"{label} at N_d {point.data_parallel_size}: {numbers.with_unit(point.peak_bytes, units)}"
    x, y = frame.x(point.data_parallel_size), frame.y(point.peak_bytes)
    return titled(words, tag("circle", cx=x, cy=y, r=3.5, class_=series))
