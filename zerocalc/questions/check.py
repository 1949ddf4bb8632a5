"""Budgets: every job evaluated, every bound held against it, failures first. All run, whatever the others do."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zerocalc.errors import ZerocalcError, unknown_name
from zerocalc.evaluate import evaluate, request_of
from zerocalc.jobs.assemble import Assembler, level
from zerocalc.questions.diff import changed
from zerocalc.questions.limits import Asked, Base, check_limit
from zerocalc.questions.remedies import remedy
from zerocalc.questions.snapshots import snapshot
from zerocalc.results import Resolved
from zerocalc.results.check import (
    Binding,
    Changed,
    CheckedBudget,
    CheckedLimit,
    CheckReport,
    Problem,
    Remedy,
    Snapshot,
    Totals,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from zerocalc.frameworks.terms import Plan
    from zerocalc.jobs.project import ProjectFile
    from zerocalc.readers.reading import Reading
    from zerocalc.results import StrategyResult
    from zerocalc.specs.budget import Budget
    from zerocalc.specs.job import Job

MOST_REMEDIES = 50
"""Failing budgets for which a remedy is searched: a search costs more than the check."""
NO_BASELINE = (
    "limits on growth are not checked: there is no baseline; give --baseline FILE or --baseline-rev REV, or set "
    "baseline in the project file"
)
FIRST = {"error": 0, "failed": 1, "warned": 2, "passed": 3}


@dataclass(frozen=True, slots=True)
class Check:
    """What came out: the report, and the figures to be kept."""

    report: CheckReport
    snapshots: list[Snapshot]


@dataclass(slots=True)
class _Run:
    """What the budgets of one run share."""

    file: ProjectFile
    shared: Reading
    baseline: Mapping[str, Snapshot] | None
    assembler: Assembler = field(default_factory=Assembler)
    results: dict[str, tuple[StrategyResult, Plan]] = field(default_factory=dict)
    """Budgets about the same job share its answer."""
    remedies_left: int = MOST_REMEDIES
    warnings: dict[str, None] = field(default_factory=dict)
    snapshots: list[Snapshot] = field(default_factory=list)


def check(
    file: ProjectFile,
    *,
    names: Sequence[str] = (),
    baseline: Sequence[Snapshot] | None = None,
    keep: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Check:
    """Check the budgets of a project, those named or all; `keep` gathers the figures for a baseline.

    Raises UnknownNameError for a name that no budget has; what is wrong with one budget is reported as its own.
    """
    run = _Run(
        file,
        level(file.project.job, f"{file.label}:{file.lines.of(key='job')}", file.base),
        None if baseline is None else {one.name: one for one in baseline},
        warnings=dict.fromkeys(file.warnings),
    )
    chosen = _chosen(file, names)
    checked = []
    with _uncollected():
        for done, (index, budget) in enumerate(chosen, start=1):
            checked.append(_budget(run, index, budget, keep=keep))
            if progress is not None:
                progress(done, len(chosen))
    return Check(_report(run, names, checked), run.snapshots)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the cyclic garbage collector: answers hold no cycles, and looking for some takes a fifth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _chosen(file: ProjectFile, names: Sequence[str]) -> list[tuple[int, Budget]]:
    budgets = list(enumerate(file.project.budget))
    known = [budget.name for _, budget in budgets]
    for name in names:
        if name not in known:
            raise unknown_name(
                "budget", name, known, hint=f"budgets in {file.label}: {', '.join(known[:20])}"
            )
    return [(index, budget) for index, budget in budgets if not names or budget.name in names]


def _report(run: _Run, names: Sequence[str], checked: list[CheckedBudget]) -> CheckReport:
    counts = {status: sum(budget.status == status for budget in checked) for status in FIRST}
    request: dict[str, Any] = {"config": Resolved(value=run.file.label, origin="file")}
    if names:
        request["names"] = Resolved(value=list(names), origin="flag")
    if not checked:
        run.warnings[f"{run.file.label}: has no budgets"] = None
    return CheckReport(
        kind="check",
        request=request,
        verdict="error" if counts["error"] else "failed" if counts["failed"] else "passed",
        budgets=sorted(checked, key=lambda budget: FIRST[budget.status]),
        totals=Totals(
            budgets=len(checked),
            skipped_limits=sum(limit.status == "skipped" for budget in checked for limit in budget.limits),
            **counts,
        ),
        warnings=list(run.warnings),
    )


def _budget(run: _Run, index: int, budget: Budget, *, keep: bool) -> CheckedBudget:
    """One budget's verdict; whatever is wrong with its job or its limits becomes its problem."""
    lines, label = run.file.lines, run.file.label
    try:
        where = f"{label}:{lines.of(index, key='job')}"
        own = level(budget.job, where, run.file.base)
        job, key = run.assembler.job([own, run.shared])
        if key not in run.results:
            run.results[key] = evaluate(job)
        result, plan = run.results[key]
        run.warnings |= dict.fromkeys((*job.warnings, *plan.warnings))
        if keep:
            run.snapshots.append(snapshot(budget.name, request_of(job), result))
        asked = _asked(run, index, budget)
        base = None if run.baseline is None else run.baseline.get(budget.name)
        limits = [check_limit(one, result, _base(run, base, one)) for one in asked]
    except ZerocalcError as error:
        problem = Problem(code=error.code, message=error.message, hint=error.hint)
        line = lines.of(index, key="job")
        return CheckedBudget(name=budget.name, status="error", file=label, line=line, problem=problem)
    status = _status(limits)
    verdict: dict[str, Any] = {
        "name": budget.name,
        "status": status,
        "file": label,
        "line": lines.of(index),
        "strategy": result.strategy,
        "framework": result.framework,
        "limits": limits,
    }
    if status == "passed":
        return CheckedBudget(**verdict)
    return _explained(run, verdict, asked, (job, result, base))


def _status(limits: Sequence[CheckedLimit]) -> Any:
    failed = {limit.level for limit in limits if limit.status == "failed"}
    return "failed" if "error" in failed else "warned" if failed else "passed"


def _explained(
    run: _Run, verdict: dict[str, Any], asked: list[Asked], found: tuple[Job, StrategyResult, Snapshot | None]
) -> CheckedBudget:
    """A budget that is over: where, what is largest there, what would help, what changed since the baseline."""
    job, result, base = found
    failed = [limit for limit in verdict["limits"] if limit.status == "failed"]
    worst = next((limit for limit in failed if limit.level == "error"), failed[0])
    tried = run.remedies_left > 0
    run.remedies_left -= tried
    bases = [Base(limit.base, limit.reason) for limit in verdict["limits"]]
    helps: Remedy | None = None
    if tried:
        helps = remedy(job, result, worst.metric, lambda other: _holds(asked, bases, other))
    moved: Changed | None = None
    if base is not None:
        moved = changed(base, snapshot(verdict["name"], request_of(job), result))
    return CheckedBudget(
        **{**verdict, "line": worst.line},
        binding=binding_of(result, worst.metric),
        remedy=helps,
        remedies_tried=tried,
        changed=moved,
    )


def _holds(asked: list[Asked], bases: list[Base], result: StrategyResult) -> bool:
    """Whether another result keeps every limit, and fits where that is known."""
    checked = [check_limit(one, result, base) for one, base in zip(asked, bases, strict=True)]
    return result.fits is not False and all(limit.status != "failed" for limit in checked)


def _asked(run: _Run, index: int, budget: Budget) -> list[Asked]:
    """Every bound of every limit, in the order of the file."""
    lines = run.file.lines
    asked = []
    for number, limit in enumerate(budget.limits):
        line = lines.of(index, number, "metric") if budget.limit else lines.of(index)
        asked += [
            Asked(limit, bound, written, limit.level or budget.level, line)
            for bound, written in limit.bounds.items()
        ]
    return asked


def _base(run: _Run, base: Snapshot | None, asked: Asked) -> Base:
    """The former value of a growth limit's metric, or why there is none."""
    if asked.bound != "max_increase":
        return Base()
    if run.baseline is None:
        run.warnings[NO_BASELINE] = None
        return Base(None, "no baseline")
    if base is None:
        return Base(None, "new: the baseline does not have this budget")
    value = base.metrics.get(asked.limit.metric)
    return Base(value if isinstance(value, (int, float)) else None)


_TIERS = {"memory.cpu": "cpu", "memory.nvme": "nvme"}


def binding_of(result: StrategyResult, path: str) -> Binding | None:
    """The largest part of what a metric is about: a collective, or a term at the peak of its tier."""
    assert result.memory is not None
    if path.startswith("communication."):
        rows = result.communication.collectives if result.communication else []
        return _largest({f"{row.op} of {row.tensor}": row.sent_bytes for row in rows})
    tier = next((name for prefix, name in _TIERS.items() if path.startswith(prefix)), "gpu")
    memory = getattr(result.memory, tier)
    if not memory.phases:
        return None
    peak = max(memory.phases, key=lambda phase: memory.phases[phase])
    named = path.rpartition("memory.gpu.phases.")[2]
    phase = named if named in memory.phases else peak
    by_name: dict[str, int] = {}
    for term in memory.terms:
        if phase in term.phases:
            by_name[term.name] = by_name.get(term.name, 0) + term.bytes
    return _largest(by_name)


def _largest(amounts: Mapping[str, int]) -> Binding | None:
    name = max(amounts, key=lambda one: amounts[one], default=None)
    return None if name is None or not amounts[name] else Binding(name=name, value=amounts[name])
