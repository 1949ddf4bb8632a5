"""Annotations on a pull request: one per budget that did not pass, ten at most, the verdict last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocalc.render.budgets import reasons, verdict

if TYPE_CHECKING:
    from zerocalc.render import Look
    from zerocalc.results.check import CheckedBudget, CheckReport

MOST = 10
"""What GitHub shows of a kind in one step."""
_COMMANDS = {"error": "error", "failed": "error", "warned": "warning"}


def render(result: CheckReport, look: Look) -> str:
    """Workflow commands, one a line."""
    wrong = [budget for budget in result.budgets if budget.status != "passed"]
    lines = [_annotation(budget, look.units) for budget in wrong[:MOST]]
    if len(wrong) > MOST:
        lines.append(f"::notice title=zerocalc::and {len(wrong) - MOST} more")
    return "\n".join([*lines, data(verdict(result))])


def _annotation(budget: CheckedBudget, units: str) -> str:
    properties = {"title": f"budget {budget.name}", "file": budget.file, "line": str(budget.line)}
    listed = ",".join(f"{name}={value(text)}" for name, text in properties.items())
    message = "\n".join(f"{label}: {text}" for label, text in reasons(budget, units))
    return f"::{_COMMANDS[budget.status]} {listed}::{data(message)}"


def data(text: str) -> str:
    """The text as a message: what would end it or start another command is escaped."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def value(text: str) -> str:
    """The text as a property."""
    return data(text).replace(":", "%3A").replace(",", "%2C")
