"""`check`: what failed and why, then every limit in one table, the verdict last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocalc.render import numbers
from zerocalc.render.budgets import WORDS, pair, reasons, verdict
from zerocalc.render.document import Block, Cell, Column, Document, Facts, Note, Table, Tone, Verbatim

if TYPE_CHECKING:
    from zerocalc.render import Look
    from zerocalc.results.check import CheckedBudget, CheckedLimit, CheckReport

MOST_LISTED = 100
"""Budgets in the table; those that did not pass are all there."""
_SIGNS = {"max": "≤", "min": "≥", "equals": "=", "max_increase": "≤"}
_TONES: dict[str, Tone] = {"passed": "good", "failed": "bad", "error": "bad"}


def view(result: CheckReport, look: Look) -> Document:
    """Failures, the table, warnings, the verdict."""
    blocks: list[Block] = [
        Facts(_title(budget), tuple(reasons(budget, look.units)))
        for budget in result.budgets
        if budget.status != "passed"
    ]
    listed, left_out = _listed(result.budgets)
    if listed:
        blocks.append(_table(listed, look.units))
    if left_out:
        blocks.append(Note(f"{numbers.count(left_out)} more budgets passed; `--format json` has them"))
    blocks += [Note(warning, "Warning", "warning") for warning in result.warnings]
    word, _, rest = verdict(result).partition(": ")
    tone = _TONES[result.verdict]
    blocks.append(Verbatim(rest, word, tone) if look.quiet else Note(rest, word, tone))
    return Document(tuple(blocks))


def _title(budget: CheckedBudget) -> str:
    return f"{WORDS[budget.status]} {budget.name} ({budget.file}:{budget.line})"


def _listed(budgets: list[CheckedBudget]) -> tuple[list[CheckedBudget], int]:
    """The budgets to list, and how many that passed are too many to read."""
    with_limits = [budget for budget in budgets if budget.limits]
    wrong = [budget for budget in with_limits if budget.status != "passed"]
    passed = [budget for budget in with_limits if budget.status == "passed"]
    room = max(0, MOST_LISTED - len(wrong))
    return wrong + passed[:room], len(passed[room:])


def _table(budgets: list[CheckedBudget], units: str) -> Table:
    rows = [
        _row(budget, limit, units, first=index == 0)
        for budget in budgets
        for index, limit in enumerate(budget.limits)
    ]
    names = ("Budget", "Metric", "Value", "Limit", "Left", "Verdict")
    columns = tuple(Column(name, right=name in {"Value", "Limit", "Left"}) for name in names)
    return Table(f"Budgets; sizes in {units}", columns, tuple(rows))


def _row(budget: CheckedBudget, limit: CheckedLimit, units: str, *, first: bool) -> tuple[Cell, ...]:
    value, allowed = pair(limit.value, limit.limit, limit.unit, units)
    return (
        Cell(budget.name if first else "", "strong"),
        Cell(limit.metric),
        Cell(value.removesuffix(f" {units}")),
        Cell(f"{_SIGNS[limit.bound]} {allowed.removesuffix(f' {units}')}"),
        Cell(_left(limit, units)),
        _verdict(limit),
    )


def _left(limit: CheckedLimit, units: str) -> str:
    """Room with its sign; what is over is negative."""
    if limit.excess is None:
        return numbers.NOTHING
    if limit.unit == "number":
        return numbers.short(-float(limit.excess)).replace("-", numbers.MINUS)
    left = -round(limit.excess)
    return numbers.headroom(left, units, numbers.decimals_for([left], units))


def _verdict(limit: CheckedLimit) -> Cell:
    if limit.status == "skipped":
        return Cell(f"skipped: {limit.reason}", "warning")
    if limit.status == "passed":
        return Cell("ok", "good")
    return Cell("OVER", "bad") if limit.level == "error" else Cell("over (warning)", "warning")
