"""Rows about what a framework holds beside a job's tensors, and the named reserves made of them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from zerocalc.presets.rows import BYTES, Figure, Preset, read_figure, row_of


class Overhead(NamedTuple):
    """One measured or source-read overhead; `figure` may be in words."""

    id: str
    kind: str
    what: str
    conditions: str
    figure: Figure
    notes: str
    origin: str


def read_overhead(preset: Preset) -> Overhead:
    """Read one overhead's row."""
    row = row_of(preset)
    figure = row.figure("figure")
    if figure is None:
        raise row.error("figure", "is missing")
    kind, what, conditions = row.text("kind"), row.text("what", ""), row.text("conditions", "")
    overhead = Overhead(preset.id, kind, what, conditions, figure, row.text("notes", ""), preset.origin)
    row.done()
    return overhead


class Reserve(NamedTuple):
    """Memory kept free of the job's tensors: fixed parts (named figures), and fragmentation of the rest.

    `fragmentation` is reserved over allocated memory in training (1.05 means 5 % more reserved than used).
    """

    id: str
    name: str
    parts: dict[str, Figure]
    fragmentation: Figure
    notes: str
    origin: str

    @property
    def fixed_bytes(self) -> int:
        """Bytes of the fixed parts: context, communicators, workspaces."""
        return sum(math.ceil(figure.exact) for figure in self.parts.values())

    def bytes_of(self, capacity_bytes: int) -> int:
        """Bytes reserved on a GPU of this capacity: the fixed parts, and of the rest what fragmentation takes."""
        rest = max(capacity_bytes - self.fixed_bytes, 0)
        return self.fixed_bytes + math.ceil(rest * (1 - 1 / self.fragmentation.exact))


def read_reserve(preset: Preset) -> Reserve:
    """Read a named reserve's row."""
    row = row_of(preset)
    if row.text("kind") != "reserve":
        raise row.error("kind", "is not 'reserve'", hint="zerocalc presets list overheads")
    parts = {part.text("name"): read_figure(part, BYTES, also=("name",)) for part in row.rows("parts")}
    fragmentation = row.figure("fragmentation", {"ratio": Fraction(1)})
    if fragmentation is None or fragmentation.exact < 1:
        raise row.error("fragmentation", "must be a ratio of at least 1")
    reserve = Reserve(
        preset.id, row.text("what", preset.id), parts, fragmentation, row.text("notes", ""), preset.origin
    )
    row.done()
    return reserve
