"""CSV in long form: raw integers, units in the header, one row per strategy and term."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from zerocalc.results import plain

if TYPE_CHECKING:
    from zerocalc.render import Look
    from zerocalc.results import Estimates, Solution, StrategyResult
    from zerocalc.results.check import CheckReport, Diff
    from zerocalc.results.explanation import Contrast, Explanation

Row = Mapping[str, Any]


def _terms(result: StrategyResult) -> Iterator[Row]:
    """One row per term on any tier; a strategy that does not apply keeps one row with its reason."""
    common = {
        "strategy": result.strategy,
        "framework": result.framework,
        "applicable": result.applicable,
        "reason": result.reason,
        "rank_class": result.rank_class,
    }
    memory = result.memory
    if memory is None:
        yield common
        return
    verdict = {
        "peak_bytes": memory.gpu.peak_bytes,
        "peak_phase": memory.gpu.peak_phase,
        "fits": result.fits,
        "headroom_bytes": result.headroom_bytes,
        "capacity_bytes": result.capacity_bytes,
        **_time(result),
    }
    for tier in ("gpu", "cpu", "nvme"):
        for term in getattr(memory, tier).terms:
            yield common | {
                "tier": tier,
                "term": term.name,
                "state": term.state,
                "part": term.part,
                "bytes": term.bytes,
                "sharded_over_ranks": term.sharded_over,
                "phases": " ".join(term.phases),
                "source": term.source,
                **verdict,
            }


def _time(result: StrategyResult) -> Row:
    """The bounds of a step, where they are known."""
    if result.time is None:
        return {}
    step, tokens = result.time.step_s, result.time.tokens_per_s
    return {
        "step_lower_s": step.lower,
        "step_upper_s": step.upper,
        "tokens_per_s_lower": tokens.lower,
        "tokens_per_s_upper": tokens.upper,
    }


def _estimates(result: Estimates) -> Iterator[Row]:
    for row in result.results:
        yield from _terms(row)


def _solution(result: Solution) -> Iterator[Row]:
    for answer in result.answers:
        yield {"quantity": result.quantity, **plain(answer)}


def _explanation(result: Explanation) -> Iterator[Row]:
    for line in result.lines:
        row = plain(line)
        row["inputs"] = " ".join(f"{item.name}={item.value}" for item in line.inputs)
        row["phases"] = " ".join(line.phases)
        yield row


def _contrast(result: Contrast) -> Iterator[Row]:
    for line in result.lines:
        yield {name: item for name, item in plain(line).items() if name != "sides"}


def _check(result: CheckReport) -> Iterator[Row]:
    """One row per bound; a budget that could not be checked keeps one row with the reason."""
    for budget in result.budgets:
        common = {name: getattr(budget, name) for name in ("name", "status", "file", "line")}
        if budget.problem:
            yield common | {"reason": budget.problem.message}
        for limit in budget.limits:
            yield common | plain(limit) | {"status": budget.status, "limit_status": limit.status}


def _diff(result: Diff) -> Iterator[Row]:
    """One row per input, figure or term that differs."""
    for change in result.changes:
        common = {"name": change.name, "status": change.status}
        yield from (
            common | {"input": item.word, "base": _joined(item.base), "new": _joined(item.new)}
            for item in change.inputs
        )
        yield from (common | plain(item) for item in change.metrics)
        yield from (
            common
            | {"term": item.name, "part": item.part, "tier": item.tier, "unit": "byte"}
            | {"base": item.base_bytes, "new": item.new_bytes, "change": item.change_bytes}
            for item in change.terms
        )


def _joined(item: Any) -> Any:
    return " ".join(map(str, item)) if isinstance(item, (list, tuple)) else item


ROWS: dict[str, Any] = {
    "compare": _estimates,
    "estimate": _estimates,
    "solve": _solution,
    "explain": _explanation,
    "contrast": _contrast,
    "check": _check,
    "diff": _diff,
}


def _generic(result: Any) -> Iterator[Row]:
    """An answer without a table of its own: its rows if it has some, otherwise its plain values."""
    rows = next(
        (getattr(result, name) for name in ("rows", "layers", "plans") if getattr(result, name, None)), None
    )
    if rows is not None:
        yield from (_flat(plain(row)) for row in rows)
        return
    yield {name: item for name, item in plain(result).items() if not isinstance(item, (dict, list))}


def _flat(row: Row) -> Row:
    return {name: " ".join(map(str, item)) if isinstance(item, list) else item for name, item in row.items()}


def text_of(rows: Iterable[Row]) -> str:
    """Rows as CSV; the header holds every column that any row has."""
    listed = list(rows)
    header = list(dict.fromkeys(name for row in listed for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, header, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows({name: _cell(item) for name, item in row.items()} for row in listed)
    return out.getvalue()


def _cell(item: Any) -> Any:
    return {True: "true", False: "false", None: ""}[item] if item is None or isinstance(item, bool) else item


def render(result: Any, look: Look) -> str:
    """The answer's rows."""
    return text_of(ROWS.get(result.kind, _generic)(result))
