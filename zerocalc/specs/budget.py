"""What a project file says: the jobs that must keep within bounds, and the bounds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr

from zerocalc.specs.types import Spec

Level = Literal["error", "warn"]
Amount = StrictInt | StrictFloat | StrictStr
BOUNDS = ("max", "min", "equals", "max_increase")
MAX_BUDGETS = 10_000
MAX_LIMITS = 100


class Limit(Spec):
    """Bounds on one number of the answer."""

    metric: Annotated[str, Field(min_length=1, max_length=200)]
    """JSON path within one result: `memory.gpu.peak_bytes`, `communication.sent_bytes_per_rank`, `fits`."""
    max: Amount | None = None
    """At most this: a size (`72GiB`), a share of the GPU or the node (`90%`), or a number."""
    min: Amount | None = None
    """At least this: a size, a share or a number."""
    equals: StrictBool | Amount | None = None
    """Exactly this: true, false, a size, a number or a name."""
    max_increase: Amount | None = None
    """Growth against the baseline: a share of its value (`2%`), a size or a number."""
    level: Level | None = None
    """`warn` prints and passes; the budget's level when absent."""

    @property
    def bounds(self) -> dict[str, Any]:
        """The bounds that are given, by name."""
        return {name: value for name in BOUNDS if (value := getattr(self, name)) is not None}


FITS = Limit(metric="fits", equals=True)
"""What a budget without a limit asks for."""


class Budget(Spec):
    """One job and what it must keep within."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    """Unique; `zerocalc check NAME` runs this one alone."""
    job: dict[str, Any] | str = Field(default_factory=dict)
    """The flags of `zerocalc estimate` as keys, or the path of a job file."""
    level: Level = "error"
    """`error` fails the check when a limit is passed, `warn` prints and passes."""
    limit: Annotated[tuple[Limit, ...], Field(max_length=MAX_LIMITS)] = ()
    """The bounds; none asks that the job fits."""

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The bounds, or that it fits."""
        return self.limit or (FITS,)


class Project(Spec):
    """`zerocalc.toml`, or `[tool.zerocalc]` of pyproject.toml."""

    job: dict[str, Any] | str = Field(default_factory=dict)
    """What the budgets share; a budget's own keys and files come first."""
    baseline: str | None = None
    """The file of the last accepted figures, for `max_increase`; `check --write-baseline` writes it."""
    budget: Annotated[tuple[Budget, ...], Field(max_length=MAX_BUDGETS)] = ()
    """What must hold."""
