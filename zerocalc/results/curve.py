"""Memory over the data-parallel degree, for pictures."""

from __future__ import annotations

from dataclasses import dataclass

from zerocalc.records import Record


@dataclass(kw_only=True, eq=False, repr=False)
class CurvePoint(Record):
    """One data-parallel degree, everything else as asked."""

    data_parallel_size: int
    world_size: int
    model_states_bytes: int
    peak_bytes: int
    fits: bool | None


@dataclass(kw_only=True, eq=False, repr=False)
class Curve(Record):
    """One configuration's memory per GPU as ranks are added; the batch per GPU stays."""

    strategy: str
    framework: str
    constant_bytes: int
    """What the peak falls to: the part that further ranks do not shrink, at the last point."""
    points: list[CurvePoint]
