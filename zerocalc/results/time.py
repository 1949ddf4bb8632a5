"""Seconds of a step, always as bounds: nothing here is one invented number."""

from __future__ import annotations

from dataclasses import dataclass

from zerocalc.records import Record


@dataclass(kw_only=True, eq=False, repr=False)
class Bounds(Record):
    """The least and the most it can be."""

    lower: float
    upper: float


@dataclass(kw_only=True, eq=False, repr=False)
class LinkTime(Record):
    """One class of links: what a rank sends over it per optimizer step, and how long that takes."""

    link: str
    """`intra_node`, `inter_node`, `host` or `nvme`."""
    bytes: int
    seconds: Bounds
    bandwidth_bytes_per_s: Bounds
    """Nominal (upper) and measured (lower) rate: per GPU inside a node and to the host, per node across and to NVMe."""
    tokens_to_hide: float | None
    """Tokens per GPU and optimizer step from which compute, at the assumed utilization, takes as long."""


@dataclass(kw_only=True, eq=False, repr=False)
class Compute(Record):
    """Floating-point work of one rank per optimizer step."""

    flops: int
    """As the bounds' upper side counts it: attention's whole square, recomputation included."""
    causal_flops: int
    """The lower side: the upper triangle of attention skipped."""
    peak_flops_per_s: float
    utilization: float
    seconds: Bounds


@dataclass(kw_only=True, eq=False, repr=False)
class Training(Record):
    """A whole run of the given number of tokens."""

    tokens: int
    seconds: Bounds
    gpu_hours: Bounds


@dataclass(kw_only=True, eq=False, repr=False)
class Timing(Record):
    """Seconds per optimizer step. Lower: compute at peak, everything overlapped; upper: nothing overlapped."""

    step_s: Bounds
    compute: Compute
    links: list[LinkTime]
    exposed_s: float
    """Communication that nothing can hide: every micro-step's first gather and last reduction."""
    untimed_bytes: int
    """What a rank moves over links whose rates are not known; the bounds leave it out."""
    cpu_optimizer_s: float | None
    bubble_factor: float
    """How much longer a step takes because pipeline stages wait; 1 without a pipeline."""
    upper_over_lower: float
    """How far apart the bounds of a step are."""
    tokens_per_gpu: int
    """Tokens one rank works on per optimizer step, to be held against `tokens_to_hide`."""
    tokens_per_step: int
    tokens_per_s: Bounds
    efficiency: dict[str, float]
    """ZeRO-Infinity's share of peak when the named traffic is not overlapped; empty without offload."""
    training: Training | None
    origins: dict[str, str]
    """Where each rate came from."""


@dataclass(kw_only=True, eq=False, repr=False)
class Crossover(Record):
    """A strategy that saves memory by sending more, held against the one that it does without."""

    framework: str
    strategy: str
    against: str
    lower_difference_s: float
    """By how much longer its step takes at least; negative where it is shorter."""
    upper_difference_s: float
    """By how much longer its step takes when nothing overlaps."""
    tokens_to_hide: float | None
    """Tokens per GPU and optimizer step from which compute hides the wire traffic of both; null where nothing is sent."""
