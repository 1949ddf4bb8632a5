"""`sweep`: one page of rows as a table, and after the last one what was left out and assumed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from zerocalc.render import numbers
from zerocalc.render.document import Block, Cell, Column, Document, Note, Table
from zerocalc.render.views.common import notes_of

if TYPE_CHECKING:
    from zerocalc.render import Look
    from zerocalc.results.sweep import Refused, SweepHead

Row = tuple[Any, ...]
REASONS = 5


@dataclass(frozen=True, kw_only=True)
class Page:
    """Some rows of a sweep; the last page says how many there were."""

    head: SweepHead
    rows: Sequence[Row]
    num_rows: int | None = None
    refused: Sequence[Refused] = ()
    kind: str = "sweep"


def view(page: Page, look: Look) -> Document:
    """The table; below the last one the notes."""
    blocks: list[Block] = []
    if page.rows:
        title = f"{page.head.num_configurations:,} configurations; {look.units} per GPU"
        blocks.append(_table(page.head, page.rows, title, look.units))
    if page.num_rows is not None:
        blocks.append(Note(f"{page.num_rows:,} of {page.head.num_configurations:,} configurations are shown"))
        blocks += [
            Note(f"{item.num_configurations:,} cannot be: {item.reason}", "Left out")
            for item in page.refused[:REASONS]
        ]
        blocks += notes_of(page.head)
    return Document(tuple(blocks))


class Shown(NamedTuple):
    """How a column is shown to people."""

    header: str
    write: Callable[[Sequence[Any], str], list[str]]


def _sizes(values: Sequence[Any], units: str) -> list[str]:
    return numbers.column(values, units)


def _plainly(values: Sequence[Any], units: str) -> list[str]:
    return [numbers.value(value) for value in values]


def _words(values: Sequence[Any], units: str) -> list[str]:
    return [numbers.value(value).replace("_", " ") for value in values]


def _seconds(values: Sequence[Any], units: str) -> list[str]:
    return [
        numbers.NOTHING if value is None else f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
        for value in values
    ]


SHOWN: dict[str, Shown] = {
    "model_states_bytes": Shown("States", _sizes),
    "peak_bytes": Shown("Peak", _sizes),
    "peak_phase": Shown("Peak in", _words),
    "headroom_bytes": Shown("Left", _sizes),
    "fits": Shown("Fits", _plainly),
    "sent_bytes_per_rank": Shown("Sent", _sizes),
    "volume_params": Shown("Wire", lambda values, _: [numbers.times_psi(value) for value in values]),
    "host_bytes_per_node": Shown("Host/node", _sizes),
    "host_fits": Shown("Host fits", _plainly),
    "nvme_bytes_per_node": Shown("NVMe/node", _sizes),
    "nvme_fits": Shown("NVMe fits", _plainly),
    "step_s_lower": Shown("s/step ≥", _seconds),
    "step_s_upper": Shown("s/step ≤", _seconds),
    "tokens_per_s_lower": Shown("tokens/s ≥", _seconds),
    "tokens_per_s_upper": Shown("tokens/s ≤", _seconds),
}
_LEFT = ("strategy", "framework", "peak_phase")
_ALWAYS = ("strategy", "peak_bytes")


def _table(head: SweepHead, rows: Sequence[Row], title: str, units: str) -> Table:
    varied = [axis.word for axis in head.axes]
    columns: list[tuple[Column, list[Cell]]] = []
    for at, name in enumerate(head.columns):
        values = [row[at] for row in rows]
        silent = all(value is None or (value == 0 and name.startswith(("host", "nvme"))) for value in values)
        dull = (name in {"framework", "host_fits", "nvme_fits"} and len(set(values)) < 2) or (
            name == "strategy" and not rows
        )
        if name not in varied and name not in _ALWAYS and (silent or dull):
            continue
        shown = SHOWN.get(name, Shown(name.replace("_", "-"), _plainly))
        cells = [_cell(name, text) for text in shown.write(values, units)]
        columns.append((Column(shown.header, right=name not in _LEFT), cells))
    return Table(
        title,
        tuple(column for column, _ in columns),
        tuple(zip(*(cells for _, cells in columns), strict=True)),
        names=len(varied),
    )


def _cell(name: str, text: str) -> Cell:
    if not name.endswith("fits"):
        return Cell(text)
    return Cell(text, "good" if text == "yes" else "bad" if text == "no" else "faint")
