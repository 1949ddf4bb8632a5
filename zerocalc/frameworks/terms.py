"""What a framework answers with: terms (bytes held), collectives (bytes sent), traffic to host and NVMe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, Protocol

from zerocalc.records import Record

if TYPE_CHECKING:
    from zerocalc.strategies import State

Tier = Literal["gpu", "cpu", "nvme"]
Link = Literal["host", "nvme"]
Direction = Literal["to_host", "from_host", "read", "write"]

INITIALIZATION = "initialization"
AT_REST = "at_rest"
FORWARD_BACKWARD = "forward_backward"
BACKWARD_END = "backward_end"
OPTIMIZER_STEP = "optimizer_step"
PHASES = (
    INITIALIZATION, AT_REST,
    "first_layer_forward", "last_layer_forward", "forward", "forward_end", "loss_backward", "backward_start",
    FORWARD_BACKWARD, "backward", "last_layer_backward", "embedding_backward", "root_reduction",
    BACKWARD_END, "gradient_upcast", OPTIMIZER_STEP,
)  # fmt: skip
"""Every phase that some framework models, in the order of a step."""
ALWAYS = (AT_REST, FORWARD_BACKWARD, BACKWARD_END, OPTIMIZER_STEP)
GRADS_LIVE = (BACKWARD_END, OPTIMIZER_STEP)


class Evaluated(Protocol):
    """A number that can say how it came about: one formula, or a sum of one over groups of equal tensors."""

    @property
    def value(self) -> Any:
        """The number."""

    @property
    def expression(self) -> str:
        """The formula."""

    @property
    def inputs(self) -> Mapping[str, Any]:
        """What went in."""

    @property
    def source(self) -> str:
        """The citation key."""

    def substituted(self) -> str:
        """The formula with its numbers."""


@dataclass(kw_only=True, eq=False, repr=False)
class Term(Record):
    """Named bytes on one memory tier of one rank."""

    name: str
    amount: Evaluated
    phases: tuple[str, ...]
    state: State | None = None
    part: str = "dense"
    tier: Tier = "gpu"
    sharded_over: int = 1
    falls: bool = False
    """Whether it shrinks as the data-parallel degree grows; what does not is the floor."""

    @property
    def bytes(self) -> int:
        """Bytes on the rank that holds most."""
        value: int = self.amount.value
        return value


@dataclass(kw_only=True, eq=False, repr=False)
class Collective(Record):
    """One kind of collective: `count` calls per optimizer step, each over `full` bytes."""

    op: str
    tensor: str
    dtype: str
    group_size: int
    count: int
    full: Evaluated
    """Bytes of the whole tensor in one call."""
    sent: Evaluated
    """Bytes one rank sends in all calls of the step."""
    part: str = "dense"
    phase: str = "backward"
    group: str = "shard"
    volume_params: Fraction | float = 0
    """What the papers print: multiples of Ψ times the element size, without the (N−1)/N factor."""
    inter_node_volume_params: Fraction | float = 0
    """The share of `volume_params` that the papers count across nodes."""
    full_bytes_in_all: int | None = None
    """Sum over the calls where they differ in size; null where every call carries `full`."""

    @property
    def full_bytes(self) -> int:
        """Bytes of the whole tensors, summed over the calls."""
        one: int = self.full.value
        return self.count * one if self.full_bytes_in_all is None else self.full_bytes_in_all

    @property
    def sent_bytes(self) -> int:
        """Bytes one rank sends, summed over the calls."""
        value: int = self.sent.value
        return value


@dataclass(kw_only=True, eq=False, repr=False)
class Traffic(Record):
    """Bytes that one rank moves over a link to the host or to NVMe in one optimizer step."""

    link: Link
    direction: Direction
    name: str
    amount: Evaluated

    @property
    def bytes(self) -> int:
        """Bytes per rank and optimizer step."""
        value: int = self.amount.value
        return value


@dataclass(slots=True)
class Plan:
    """Everything a framework says about one rank class."""

    terms: list[Term] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)
    traffic: list[Traffic] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
