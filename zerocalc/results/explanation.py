"""Where a number comes from, and why two frameworks differ: formulas with their numbers, origins and sources."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from zerocalc.records import Record
from zerocalc.results import Answer


@dataclass(kw_only=True, eq=False, repr=False)
class ExplainedInput(Record):
    """One symbol of a formula, its value and where that came from."""

    name: str
    value: Any
    origin: str


@dataclass(kw_only=True, eq=False, repr=False)
class ExplainedLine(Record):
    """One term of the explained quantity."""

    strategy: str
    name: str
    part: str
    tier: str
    value: Any
    unit: str
    formula: str
    substituted: str
    inputs: list[ExplainedInput]
    source: str
    citation: str
    phases: list[str] = field(default_factory=list)


@dataclass(kw_only=True, eq=False, repr=False)
class Explanation(Answer):
    """`explain`: where a number comes from, line by line."""

    quantity: str
    lines: list[ExplainedLine]
    totals: dict[str, Any]
    assumptions: list[str] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(kw_only=True, eq=False, repr=False)
class ContrastSide(Record):
    """One framework's term behind a line of a contrast."""

    framework: str
    name: str
    part: str
    bytes: int
    formula: str
    substituted: str
    source: str
    citation: str


@dataclass(kw_only=True, eq=False, repr=False)
class ContrastLine(Record):
    """One kind of term under one strategy, as two frameworks hold it at their peaks."""

    strategy: str
    name: str
    bytes: int
    against_bytes: int
    difference_bytes: int
    because: str
    sides: list[ContrastSide]


@dataclass(kw_only=True, eq=False, repr=False)
class Contrast(Answer):
    """`explain --against`: why two frameworks' answers differ, line by line."""

    framework: str
    against: str
    lines: list[ContrastLine]
    assumptions: list[str] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
