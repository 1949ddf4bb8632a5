"""JSON Lines: one result object a line, for streams."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from zerocalc.results import plain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zerocalc.render import Look

ROWS = {
    "compare": "results",
    "estimate": "results",
    "solve": "answers",
    "explain": "lines",
    "presets": "rows",
    "plan": "plans",
    "check": "budgets",
    "diff": "changes",
}
"""Which list of an answer holds its rows, by kind; a kind that has none is one line itself."""


def rows_of(result: Any) -> Iterable[Any]:
    """The objects that make one line each."""
    return getattr(result, ROWS[result.kind]) if result.kind in ROWS else [result]


def line(row: Any) -> str:
    """One object on one line."""
    return json.dumps(plain(row), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def render(result: Any, look: Look) -> str:
    """One line per result."""
    return "".join(f"{line(row)}\n" for row in rows_of(result))
