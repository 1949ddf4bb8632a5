"""What `sweep` and `plan` answer. Plain frozen dataclasses, like `results`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from zerocalc.records import Record
from zerocalc.results import Answer, StrategyResult


@dataclass(kw_only=True, eq=False, repr=False)
class SweptAxis(Record):
    """One axis of a grid."""

    word: str
    num_values: int


@dataclass(kw_only=True, eq=False, repr=False)
class Refused(Record):
    """Configurations that cannot be, such as degrees that do not divide the world."""

    reason: str
    num_configurations: int


@dataclass(kw_only=True, eq=False, repr=False)
class SweepHead(Answer):
    """What is known of a sweep before its first row."""

    axes: list[SweptAxis]
    columns: list[str]
    """The keys of every row: the axes' values, then the figures; what is not known is null."""
    num_configurations: int
    assumptions: list[str] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(kw_only=True, eq=False, repr=False)
class SweepAnswer(SweepHead):
    """`sweep`: one row per wanted configuration of a grid."""

    rows: list[dict[str, Any]]
    num_rows: int
    refused: list[Refused]


@dataclass(kw_only=True, eq=False, repr=False)
class Difference(Record):
    """One thing in which the best configuration and the next differ."""

    name: str
    value: Any
    against: Any
    unit: str


@dataclass(kw_only=True, eq=False, repr=False)
class Planned(Record):
    """One configuration that fits, with its place."""

    place: int
    strategy: str
    framework: str
    tp: int
    pp: int
    cp: int
    ep: int
    data_parallel_size: int
    micro_batch: int
    grad_accum: int
    checkpointing: str
    offload_optimizer: str
    offload_params: str
    settings: dict[str, Any]
    peak_bytes: int
    headroom_bytes: int
    sent_bytes_per_rank: int
    step_s_lower: float
    step_s_upper: float
    tokens_per_s_lower: float
    tokens_per_s_upper: float
    command: str
    """The options that make `estimate` answer for this configuration."""


@dataclass(kw_only=True, eq=False, repr=False)
class PlanAnswer(Answer):
    """`plan`: the configurations to run, the fastest first."""

    global_batch: int
    """Sequences per optimizer step."""
    num_candidates: int
    """Configurations that could be."""
    num_evaluated: int
    """Those that were answered in full; the others cannot fit, or only add recomputation or offload to one that fits."""
    num_fitting: int
    """Of those evaluated."""
    plans: list[Planned]
    differences: list[Difference]
    """Why the first stands before the second."""
    closest: Planned | None = None
    """Where nothing fits: what comes nearest; its headroom is negative."""
    advice: list[str] = field(default_factory=list)
    """Where nothing fits: what would make it fit."""
    best: StrategyResult | None = None
    """The first configuration in full, as `estimate` answers."""
    assumptions: list[str] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
