"""What `check` and `diff` answer. The same style as `results`: plain, frozen, exact, nothing formatted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from zerocalc.records import Record
from zerocalc.results import Answer

Value = int | float | bool | str | None
Unit = Literal["byte", "number", "word"]
LimitStatus = Literal["passed", "failed", "skipped"]
BudgetStatus = Literal["passed", "warned", "failed", "error"]


@dataclass(kw_only=True, eq=False, repr=False)
class Binding(Record):
    """The largest part of what a limit is about."""

    name: str
    value: int
    """Bytes, or bytes sent."""


@dataclass(kw_only=True, eq=False, repr=False)
class RemedyChange(Record):
    """One word of the job to change."""

    word: str
    now: Value
    origin: str
    """Where the present value stands: `file:ds_config.json:zero_optimization.stage`, or `default`."""
    value: Value


@dataclass(kw_only=True, eq=False, repr=False)
class Remedy(Record):
    """The changes, fewest first tried, with which every limit of the budget holds."""

    changes: list[RemedyChange]
    result: Value
    """The metric of the worst limit with these changes."""
    headroom_bytes: int | None
    """What is then left on the GPU."""


@dataclass(kw_only=True, eq=False, repr=False)
class CheckedLimit(Record):
    """One bound on one number."""

    metric: str
    unit: Unit
    bound: Literal["max", "min", "equals", "max_increase"]
    written: Value
    """The bound as the file has it."""
    level: Literal["error", "warn"]
    status: LimitStatus
    value: Value
    limit: Value
    """The bound in the metric's unit; for `max_increase` what the baseline allows."""
    base: Value = None
    """The metric in the baseline."""
    excess: int | float | None = None
    """By how much the value is beyond the limit, negative where room is left; for `fits` the bytes that are missing."""
    reason: str | None = None
    """Why a limit was skipped."""
    line: int = 1


@dataclass(kw_only=True, eq=False, repr=False)
class Problem(Record):
    """Why a budget could not be checked."""

    code: str
    message: str
    hint: str | None


@dataclass(kw_only=True, eq=False, repr=False)
class InputChange(Record):
    """One word of the job that differs; null where one side does not have it."""

    word: str
    base: Any
    new: Any


@dataclass(kw_only=True, eq=False, repr=False)
class TermChange(Record):
    """One term whose bytes differ; null where one side does not have it."""

    tier: str
    name: str
    part: str
    base_bytes: int | None
    new_bytes: int | None
    change_bytes: int


@dataclass(kw_only=True, eq=False, repr=False)
class MetricChange(Record):
    """One number of the answer that differs."""

    metric: str
    unit: Unit
    base: Value
    new: Value
    change: int | float | None


@dataclass(kw_only=True, eq=False, repr=False)
class Changed(Record):
    """One configuration before and after."""

    name: str
    status: Literal["changed", "added", "removed", "same"]
    inputs: list[InputChange] = field(default_factory=list)
    terms: list[TermChange] = field(default_factory=list)
    metrics: list[MetricChange] = field(default_factory=list)


@dataclass(kw_only=True, eq=False, repr=False)
class Diff(Answer):
    """`diff`: what changed and why."""

    base: str
    new: str
    changes: list[Changed]
    """Those that differ first in the order of the new answer, then those that are gone."""
    num_changed: int
    num_added: int
    num_removed: int
    num_same: int
    warnings: list[str] = field(default_factory=list)


@dataclass(kw_only=True, eq=False, repr=False)
class CheckedBudget(Record):
    """One budget's verdict."""

    name: str
    status: BudgetStatus
    file: str
    line: int
    strategy: str | None = None
    framework: str | None = None
    limits: list[CheckedLimit] = field(default_factory=list)
    binding: Binding | None = None
    """The largest part of the first limit that is passed."""
    remedy: Remedy | None = None
    """What would keep every limit; null where nothing is wrong or nothing that was tried helps."""
    remedies_tried: bool = False
    changed: Changed | None = None
    """Against the baseline, for a budget that is over."""
    problem: Problem | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class Totals(Record):
    """How many budgets came to what."""

    budgets: int
    passed: int
    warned: int
    failed: int
    error: int
    skipped_limits: int


@dataclass(kw_only=True, eq=False, repr=False)
class CheckReport(Answer):
    """`check`: failures first, then the rest in the order of the file."""

    verdict: Literal["passed", "failed", "error"]
    """`error` when a budget could not be checked, else `failed` when one at level error is over."""
    budgets: list[CheckedBudget]
    totals: Totals
    warnings: list[str] = field(default_factory=list)


@dataclass(kw_only=True, eq=False, repr=False)
class TermBytes(Record):
    """A term in short."""

    tier: str
    name: str
    part: str
    bytes: int


@dataclass(kw_only=True, eq=False, repr=False)
class Snapshot(Record):
    """What a later answer is compared with: the job's words, every number of the result, every term."""

    name: str
    request: dict[str, Any]
    metrics: dict[str, Value]
    terms: list[TermBytes]


@dataclass(kw_only=True, eq=False, repr=False)
class Baseline(Answer):
    """`check --write-baseline`: the figures of every budget."""

    budgets: list[Snapshot]
