"""`presets`: what can be named, and what a name stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocalc.render import numbers
from zerocalc.render.document import Cell, Column, Document, Facts, Table, cells
from zerocalc.render.views.common import next_command, words

if TYPE_CHECKING:
    from zerocalc.render import Look


def view(result: Any, look: Look) -> Document:
    """A list of presets, or one preset in full."""
    return _list(result, look) if result.kind == "presets" else _one(result)


def _list(result: Any, look: Look) -> Document:
    columns = (Column("Kind", right=False), Column("Name", right=False), Column("What", right=False))
    rows = tuple(
        (Cell(row.kind, "faint"), Cell(row.name, "strong"), Cell(row.summary)) for row in result.rows
    )
    return Document(
        (Table(f"{len(rows)} presets", columns, rows), next_command(look, "presets show KIND NAME"))
    )


def _one(result: Any) -> Document:
    """Names and notes as lines, published figures as rows with their source."""
    figures = [(name, item) for name, item in result.values.items() if _is_figure(item)]
    figures += [(each["field"], each) for each in result.values.get("alternatives", ()) if _is_figure(each)]
    others = [
        (name, item)
        for name, item in result.values.items()
        if not _is_figure(item) and name != "alternatives"
    ]
    facts = Facts(f"{result.preset_kind} {result.name}", tuple(_flat("", dict(others))))
    return Document((facts, _figures(figures)) if figures else (facts,))


def _is_figure(item: Any) -> bool:
    return isinstance(item, dict) and "value" in item


def _figures(figures: list[tuple[str, dict[str, Any]]]) -> Table:
    columns = tuple(Column(name, right=False) for name in ("Figure", "Value", "Unit", "Sure", "Source"))
    rows = tuple(
        cells(
            [
                words(name),
                _plain(item["value"]),
                *(str(item.get(key, "")) for key in ("unit", "confidence")),
                _said(item),
            ]
        )
        for name, item in figures
    )
    return Table("Figures as published", columns, rows)


def _said(item: dict[str, Any]) -> str:
    """The source, and why a figure lost or what it needs to be read."""
    notes = [str(item[key]) for key in ("why", "note") if item.get(key)]
    return "; ".join([*notes, str(item.get("source", ""))])


def _plain(item: Any) -> str:
    return ", ".join(map(str, item)) if isinstance(item, list) else str(item)


def _flat(prefix: str, values: dict[str, Any]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, item in values.items():
        if isinstance(item, dict):
            found += _flat(f"{prefix}{name}.", item)
        elif isinstance(item, list) and any(isinstance(each, dict) for each in item):
            for index, each in enumerate(item):
                found += _flat(
                    f"{prefix}{name}.{index}.", each if isinstance(each, dict) else {"value": each}
                )
        else:
            found.append((words(f"{prefix}{name}"), numbers.value(item)))
    return found
