"""What zerocalc answers: records that cost little at start-up; pydantic reads them when a JSON Schema is written.

Every number is exact; nothing here is formatted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from zerocalc._version import __version__
from zerocalc.records import Record

if TYPE_CHECKING:
    from zerocalc.results.curve import Curve
    from zerocalc.results.time import Crossover, Timing

SCHEMA_VERSION = "0.1"


@dataclass(kw_only=True, eq=False, repr=False)
class Tool(Record):
    """Who answered."""

    name: str = "zerocalc"
    version: str = __version__


@dataclass(kw_only=True, eq=False, repr=False)
class Resolved(Record):
    """One value of the resolved job and where it came from: `flag`, `file:…`, `preset:…` or `default`."""

    value: Any
    origin: str


@dataclass(kw_only=True, eq=False, repr=False)
class TermResult(Record):
    """Named bytes on one memory tier; formula and inputs suffice to recompute them."""

    name: str
    state: Literal["params", "grads", "optimizer_states"] | None
    part: str
    bytes: int
    sharded_over: int
    phases: list[str]
    formula: str
    inputs: Mapping[str, Any]
    source: str


@dataclass(kw_only=True, eq=False, repr=False)
class GpuMemory(Record):
    """What one rank holds on its GPU."""

    model_states_bytes: int
    peak_bytes: int
    peak_phase: str
    floor_bytes: int
    phases: dict[str, int]
    terms: list[TermResult]
    constant_bytes: int
    """The part of the peak that more data-parallel ranks do not shrink."""
    falling_bytes: int
    """The part of the peak that falls as 1/N_d."""
    enough_data_parallel_size: int | None
    """From this N_d on the falling part is under 5% of the constant one, and adding GPUs stops helping; null where
    nothing is constant, so every further GPU helps."""


@dataclass(kw_only=True, eq=False, repr=False)
class TierMemory(Record):
    """What one rank, and one node, holds on the host or on NVMe."""

    bytes_per_rank: int
    bytes_per_node: int | None
    capacity_bytes: int | None
    fits: bool | None
    phases: dict[str, int]
    terms: list[TermResult]


@dataclass(kw_only=True, eq=False, repr=False)
class Memory(Record):
    """Memory by tier."""

    gpu: GpuMemory
    cpu: TierMemory
    nvme: TierMemory


@dataclass(kw_only=True, eq=False, repr=False)
class CollectiveResult(Record):
    """Calls of one kind per optimizer step; bytes are summed over the calls."""

    op: str
    tensor: str
    dtype: str
    part: str
    phase: str
    group: str
    group_size: int
    count: int
    full_bytes: int
    sent_bytes: int
    volume_params: float
    inter_node_volume_params: float
    formula: str
    inputs: Mapping[str, Any]
    source: str


@dataclass(kw_only=True, eq=False, repr=False)
class HostLink(Record):
    """Bytes between one rank and its host per optimizer step."""

    to_host_bytes: int
    from_host_bytes: int


@dataclass(kw_only=True, eq=False, repr=False)
class NvmeLink(Record):
    """Bytes between the host and NVMe per rank and optimizer step."""

    read_bytes: int
    write_bytes: int


@dataclass(kw_only=True, eq=False, repr=False)
class Links(Record):
    """Traffic off the GPU."""

    host: HostLink
    nvme: NvmeLink


@dataclass(kw_only=True, eq=False, repr=False)
class Communication(Record):
    """What crosses the wire in one optimizer step."""

    volume_params: float
    """Multiples of Ψ times the element size, without (N-1)/N, as the papers print it."""
    volume_ratio_to_ddp: float
    inter_node_volume_params: float
    """The share of `volume_params` that crosses nodes, by the papers' count."""
    sent_bytes_per_rank: int
    collectives: list[CollectiveResult]
    links: Links


@dataclass(kw_only=True, eq=False, repr=False)
class OffloadResult(Record):
    """Where states rest."""

    optimizer: str = "none"
    params: str = "none"


@dataclass(kw_only=True, eq=False, repr=False)
class StrategyResult(Record):
    """One configuration's answer."""

    strategy: str
    framework: str
    applicable: bool = True
    reason: str | None = None
    offload: OffloadResult
    rank_class: str = "all"
    memory: Memory | None = None
    savings_factor: float | None = None
    communication: Communication | None = None
    fits: bool | None = None
    capacity_bytes: int | None = None
    reserve_bytes: int = 0
    headroom_bytes: int | None = None
    binding: str | None = None
    time: Timing | None = None
    """Bounds of one optimizer step; null without a batch or the GPU's rates."""


@dataclass(kw_only=True, eq=False, repr=False)
class DividingLine(Record):
    """Whether whole parameters fit on one GPU: over it, only sharding parameters helps."""

    whole_params_bytes: int
    capacity_bytes: int
    whole_params_fit: bool
    zero2_min_data_parallel_size: int | None


@dataclass(kw_only=True, eq=False, repr=False)
class Answer(Record):
    """What every output shares."""

    schema_version: str = SCHEMA_VERSION
    kind: str
    tool: Tool = field(default_factory=Tool)
    request: dict[str, Resolved]


@dataclass(kw_only=True, eq=False, repr=False)
class Estimates(Answer):
    """`compare` and `estimate`: one result per configuration."""

    results: list[StrategyResult]
    dividing_line: DividingLine | None = None
    crossovers: list[Crossover] = field(default_factory=list)
    """Pairs of timed strategies of which one sends more to hold less."""
    curves: list[Curve] = field(default_factory=list)
    """Memory over the data-parallel degree; empty unless a picture is asked for."""
    assumptions: list[str] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(kw_only=True, eq=False, repr=False)
class SolveAnswer(Record):
    """The unknown under one strategy; null where nothing fits."""

    strategy: str
    value: int | str | None
    binding: str | None
    data_parallel_size: int | None = None
    reason: str | None = None
    peak_bytes: int | None = None
    headroom_bytes: int | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class Solution(Answer):
    """`solve`: the unknown per strategy."""

    quantity: str
    answers: list[SolveAnswer]
    assumptions: list[str] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def plain(value: Any) -> Any:
    """A result as JSON's own types. Fractions become numbers, tuples lists; dataclasses become objects in order."""
    if isinstance(value, (str, bool, int, float)) or value is None:
        return value
    if isinstance(value, Fraction):
        return value.numerator if value.denominator == 1 else float(value)
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return value
