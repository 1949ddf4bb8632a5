"""JUnit's test report: one test case per budget. Warnings pass and stand in its output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocalc.render.budgets import headline, reasons

if TYPE_CHECKING:
    from zerocalc.render import Look
    from zerocalc.results.check import CheckedBudget, CheckReport

_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\n": "&#10;", "\t": "&#9;"}
_ELEMENTS = {"failed": "failure", "error": "error"}


def render(result: CheckReport, look: Look) -> str:
    """One suite with every budget, failures first."""
    totals, suite = result.totals, escaped(str(result.request["config"].value))
    counts = f'tests="{totals.budgets}" failures="{totals.failed}" errors="{totals.error}"'
    cases = "\n".join(_case(budget, suite, look.units) for budget in result.budgets)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuites name="zerocalc" {counts}>\n'
        f'  <testsuite name="{suite}" {counts} skipped="0">\n'
        f"{cases}{chr(10) if cases else ''}  </testsuite>\n</testsuites>\n"
    )


def _case(budget: CheckedBudget, suite: str, units: str) -> str:
    opening = (
        f'    <testcase classname="{suite}" name="{escaped(budget.name)}" '
        f'file="{escaped(budget.file)}" line="{budget.line}"'
    )
    if budget.status == "passed" and all(limit.status != "skipped" for limit in budget.limits):
        return f"{opening}/>"
    return f"{opening}>\n{_inside(budget, units)}\n    </testcase>"


def _inside(budget: CheckedBudget, units: str) -> str:
    lines = (
        [f"{label}: {text}" for label, text in reasons(budget, units)] if budget.status != "passed" else []
    )
    lines += [
        f"{limit.metric}: skipped: {limit.reason}" for limit in budget.limits if limit.status == "skipped"
    ]
    body = escaped("\n".join(lines)).replace("&#10;", "\n")
    element = _ELEMENTS.get(budget.status)
    if element is None:
        return f"      <system-out>{body}</system-out>"
    kind = budget.problem.code if budget.problem else "budget"
    message = escaped(headline(budget, units))
    return f'      <{element} type="{kind}" message="{message}">{body}</{element}>'


def escaped(text: str) -> str:
    """The text for XML; characters that XML cannot hold are written out."""
    return "".join(_ESCAPES.get(one) or (one if _allowed(one) else f"\\x{ord(one):02x}") for one in text)


def _allowed(character: str) -> bool:
    code = ord(character)
    return 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code >= 0x10000
