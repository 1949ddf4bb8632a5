"""Pictures as SVG, made here: rectangles, lines and words whose places are simple sums.

No plotting library: the largest would add a hundred megabytes to draw the same forty shapes, choose its own roundings,
and leave no way to follow the reader's light or dark theme. Colours are in `report.css`; dashes, hatches and order say
the same without them.
"""

from __future__ import annotations

from html import escape
from importlib.resources import files
from typing import Any, NamedTuple

LETTER = 7.2
"""Width of a letter at the pictures' 13 pixels, from above."""
BOLD = 9.0
"""The same for bold letters."""


class Drawing(NamedTuple):
    """Shapes, and how high they stand."""

    shapes: str
    height: float


def tag(name: str, content: str = "", **attributes: Any) -> str:
    """One element; `class_` is written `class`, underscores are hyphens, numbers have two decimals at most."""
    listed = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_attribute(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{listed}>{content}</{name}>" if content else f"<{name}{listed}/>"


def _attribute(value: Any) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def text(words: str, x: float, y: float, class_: str = "", anchor: str = "start") -> str:
    """Words at a place."""
    return tag("text", escape(words), x=x, y=y, class_=class_ or None, text_anchor=anchor)


def titled(words: str, shapes: str) -> str:
    """Shapes that say what they are when they are pointed at."""
    return tag("g", tag("title", escape(words)) + shapes)


def stylesheet() -> str:
    """The colours and types of pages and pictures."""
    return files("zerocalc.render").joinpath("report.css").read_text(encoding="utf-8")


def figure(drawing: Drawing, *, width: int, title: str, name: str, class_: str = "figure") -> str:
    """A whole `svg` element with its title for readers that do not see it."""
    head = tag("title", escape(title), id=f"{name}-title")
    return tag(
        "svg",
        head + drawing.shapes,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {drawing.height:.0f}",
        width=width,
        height=round(drawing.height),
        class_=class_,
        role="img",
        aria_labelledby=f"{name}-title",
    )
