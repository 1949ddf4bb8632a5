"""A checked budget in words: what is over and by how much, what is largest, what changed, what would help.

The table, Markdown, annotations and the test report all say it with these sentences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocalc.render import numbers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zerocalc.results.check import (
        Changed,
        CheckedBudget,
        CheckedLimit,
        CheckReport,
        InputChange,
        Remedy,
        TermChange,
        Unit,
        Value,
    )

WORDS = {"failed": "FAIL", "warned": "WARN", "error": "ERROR", "passed": "ok"}
MOST_INPUTS = 6
MOST_TERMS = 3


def amount(value: Value, unit: Unit, units: str) -> str:
    """A metric for a sentence: `72.3 GB`, `2.5`, `yes`."""
    if unit == "byte" and isinstance(value, int):
        return numbers.with_unit(value, units)
    if unit == "byte" and isinstance(value, float):
        return numbers.with_unit(round(value), units)
    return numbers.value(value)


def pair(value: Value, limit: Value, unit: Unit, units: str) -> tuple[str, str]:
    """Two amounts that can be told apart: where rounding makes them equal, whole bytes."""
    texts = amount(value, unit, units), amount(limit, unit, units)
    if texts[0] != texts[1] or value == limit or unit == "word":
        return texts
    exact = [f"{each:,}" if isinstance(each, int) else repr(each) for each in (value, limit)]
    ending = " B" if unit == "byte" else ""
    return f"{exact[0]}{ending}", f"{exact[1]}{ending}"


def reasons(budget: CheckedBudget, units: str) -> Iterator[tuple[str, str]]:
    """Everything to know about a budget that did not pass, labelled, the worst first."""
    if budget.problem is not None:
        yield "problem", budget.problem.message
        if budget.problem.hint:
            yield "hint", budget.problem.hint
        return
    for limit in budget.limits:
        if limit.status == "failed":
            yield limit.metric, over(limit, units)
    if budget.binding is not None:
        yield "most of it", f"{_words(budget.binding.name)}, {numbers.with_unit(budget.binding.value, units)}"
    if budget.changed is not None and budget.changed.status == "changed":
        yield "since baseline", movement(budget.changed, units)
    if budget.remedies_tried:
        yield "fix", fix(budget, units)


def over(limit: CheckedLimit, units: str) -> str:
    """One limit that is passed: value, limit, by how much."""
    if limit.bound == "equals":
        return _unequal(limit, units)
    value, allowed = pair(limit.value, limit.limit, limit.unit, units)
    side, beyond = ("at least", "short") if limit.bound == "min" else ("at most", "over")
    grown = ""
    if limit.bound == "max_increase":
        grown = (
            f" ({amount(limit.base, limit.unit, units)} in the baseline, growth of {limit.written} allowed)"
        )
    return f"{value}, {side} {allowed}{_as_written(limit)}{grown}: {beyond} by {_beyond(limit, units)}"


def _as_written(limit: CheckedLimit) -> str:
    """The bound in the file's own words, where those are a size or a share."""
    return f" ({limit.written})" if isinstance(limit.written, str) and limit.bound != "max_increase" else ""


def _beyond(limit: CheckedLimit, units: str) -> str:
    """The excess, and its share of the limit."""
    excess, allowed = limit.excess, limit.limit
    if excess is None:
        return numbers.NOTHING
    whole = isinstance(excess, float) and limit.unit == "byte"
    text = amount(round(excess) if whole else excess, limit.unit, units)
    if text.startswith("<"):
        text = f"{excess:,} B"
    if isinstance(allowed, (int, float)) and allowed:
        return f"{text}, {percent(float(excess) / abs(float(allowed)))}"
    return text


def percent(share: float) -> str:
    """A share to three digits: `29.1%`."""
    return f"{100 * share:.3g}%" if abs(share) < 10 else f"{100 * share:,.0f}%"


def _unequal(limit: CheckedLimit, units: str) -> str:
    if limit.metric.endswith("fits") and limit.limit is True:
        missing = f": {numbers.with_unit(round(limit.excess), units)} too much" if limit.excess else ""
        return f"does not fit{missing}"
    value, wanted = pair(limit.value, limit.limit, limit.unit, units)
    return f"is {value}, must be {wanted}"


def movement(changed: Changed, units: str) -> str:
    """What changed: inputs first, then the terms that moved most."""
    inputs = [input_change(change) for change in changed.inputs[:MOST_INPUTS]]
    if len(changed.inputs) > MOST_INPUTS:
        inputs.append(f"{len(changed.inputs) - MOST_INPUTS} more")
    terms = [term_change(change, units) for change in changed.terms[:MOST_TERMS]]
    return "; ".join(", ".join(part) for part in (inputs, terms) if part) or "other figures moved"


def input_change(change: InputChange) -> str:
    """`micro_batch 1 → 2`."""
    return f"{change.word} {numbers.value(change.base)} → {numbers.value(change.new)}"


def term_change(change: TermChange, units: str) -> str:
    """`activations +15.1 GB`, with the tier where it is not the GPU."""
    sign = "+" if change.change_bytes > 0 else numbers.MINUS
    where = "" if change.tier == "gpu" else f" on {change.tier}"
    return f"{_words(change.name)}{where} {sign}{numbers.with_unit(abs(change.change_bytes), units)}"


def fix(budget: CheckedBudget, units: str) -> str:
    """What would bring the budget back, and what that gives."""
    if budget.remedy is None:
        return (
            "no change of strategy, micro-batch, checkpointing, offload or number of GPUs keeps it: "
            "a larger GPU, a smaller model or a shorter sequence is needed, or another limit"
        )
    return f"{_changes(budget.remedy)}: {_outcome(budget, budget.remedy, units)}"


def _changes(remedy: Remedy) -> str:
    return " and ".join(
        f"{change.word} = {_toml(change.value)} (now {_toml(change.now)}{_place(change.origin)})"
        for change in remedy.changes
    )


def _toml(value: Value) -> str:
    """A value as a project or job file has it."""
    return f'"{value}"' if isinstance(value, str) else numbers.value(value).replace(",", "")


def _place(origin: str) -> str:
    """Where to change it: the file and key, or that it is a default."""
    return f", {origin.removeprefix('file:')}" if origin.startswith("file:") else f", {origin}"


def _outcome(budget: CheckedBudget, remedy: Remedy, units: str) -> str:
    worst = next(limit for limit in budget.limits if limit.status == "failed" and limit.line == budget.line)
    if worst.unit == "word":
        left = remedy.headroom_bytes
        return "fits" if left is None else f"fits with {numbers.with_unit(left, units)} left"
    return f"{worst.metric} {amount(remedy.result, worst.unit, units)}"


def headline(budget: CheckedBudget, units: str) -> str:
    """One line that says why a budget did not pass."""
    if budget.problem is not None:
        return budget.problem.message
    failed = [limit for limit in budget.limits if limit.status == "failed"]
    worst = next((limit for limit in failed if limit.level == "error"), failed[0])
    more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
    return f"{worst.metric} {over(worst, units)}{more}"


def verdict(report: CheckReport) -> str:
    """The last line: `failed: 1 of 3 budgets over`."""
    totals = report.totals
    parts = []
    if totals.error:
        parts.append(f"{totals.error} could not be checked")
    if totals.failed:
        parts.append(f"{totals.failed} over")
    if totals.warned:
        parts.append(f"{totals.warned} over with a warning only")
    if totals.skipped_limits:
        parts.append(f"{_plural(totals.skipped_limits, 'limit')} skipped")
    of = _plural(totals.budgets, "budget")
    return f"{report.verdict}: {of}, {', '.join(parts)}" if parts else f"{report.verdict}: {of}"


def _plural(count: int, noun: str) -> str:
    return f"{numbers.count(count)} {noun}{'' if count == 1 else 's'}"


def _words(name: str) -> str:
    return name.replace("_", " ")
