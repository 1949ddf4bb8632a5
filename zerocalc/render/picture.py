"""One picture that stands alone: the bars and, below them, the curves."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from zerocalc.render.figures import by_framework
from zerocalc.render.svg import Drawing, figure, stylesheet, tag, text
from zerocalc.render.svg_bars import draw_bars
from zerocalc.render.svg_curve import draw_curves

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zerocalc.render import Look
    from zerocalc.results import Estimates

WIDE, MARGIN = 760, 20


class Picture(NamedTuple):
    """A drawing with its title and a name for its parts."""

    title: str
    name: str
    drawing: Drawing


def pictures(result: Estimates, units: str, *, width: int, name: str = "p") -> Iterator[Picture]:
    """The bars, then one plot per framework."""
    what = "Memory by phase" if result.kind == "estimate" else "Peak by kind of memory"
    bars = f"{name}-bars"
    yield Picture(f"{what}; {units} per GPU", bars, draw_bars(result, units, width=width, name=bars))
    grouped = by_framework(result.curves)
    for framework, curves in grouped.items():
        of = f", {framework}" if len(grouped) > 1 else ""
        title = f"Peak over the data-parallel degree{of}; {units} per GPU, both axes logarithmic"
        yield Picture(title, f"{name}-{framework}", draw_curves(result, curves, units, width=width))


def render(result: Estimates, look: Look) -> str:
    """All pictures one below the other, with their colours."""
    stacked, y = [], float(MARGIN)
    for title, _, drawing in pictures(result, look.units, width=WIDE - 2 * MARGIN):
        inside = text(title, 0, 14, "strong") + tag("g", drawing.shapes, transform="translate(0 30)")
        stacked.append(tag("g", inside, transform=f"translate({MARGIN} {y:.0f})"))
        y += drawing.height + 2 * MARGIN + 14
    paper = tag("style", stylesheet()) + tag("rect", width=WIDE, height=round(y), class_="paper")
    whole = Drawing(paper + "".join(stacked), y)
    return figure(whole, width=WIDE, title="Memory per GPU", name="memory", class_="alone")
