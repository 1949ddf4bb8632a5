"""`presets`: what can be named, and what a name stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocalc.render import numbers
from zerocalc.render.document import Block, Cell, Column, Document, Facts, Table, cells
from zerocalc.render.views.common import next_command, words

if TYPE_CHECKING:
    from zerocalc.render import Look


def view(result: Any, look: Look) -> Document:
    """A list of presets, or one preset in full."""
    return _list(result, look) if result.kind == "presets" else _one(result)


def _list(result: Any, look: Look) -> Document:
    """The presets of a kind; where no kind was named, the kinds."""
    if result.request["kind"].value is None:
        return _kinds(result, look)
    columns = (Column("Name", right=False), Column("What", right=False))
    rows = tuple((Cell(row.name, "strong"), Cell(row.summary)) for row in result.rows)
    (kind,) = result.counts
    return Document(
        (
            Table(f"{numbers.count(len(rows))} {kind}", columns, rows),
            next_command(look, f"presets show {kind} {result.rows[0].name if result.rows else 'NAME'}"),
        )
    )


def _kinds(result: Any, look: Look) -> Document:
    columns = (Column("Kind", right=False), Column("Number"))
    rows = tuple(
        (Cell(kind, "strong"), Cell(numbers.count(number))) for kind, number in result.counts.items()
    )
    return Document((Table("What can be named", columns, rows), next_command(look, "presets list models")))


def _one(result: Any) -> Document:
    """Names and notes as lines, published figures as rows, their sources numbered below."""
    figures = [(name, item) for name, item in result.values.items() if _is_figure(item)]
    unused = [(each["field"], each) for each in result.values.get("alternatives", ()) if _is_figure(each)]
    others = [
        (name, item)
        for name, item in result.values.items()
        if not _is_figure(item) and name != "alternatives"
    ]
    said = list(dict.fromkeys(_said(item) for _, item in [*figures, *unused]))
    in_words = [(name, item) for name, item in figures if isinstance(item["value"], str)]
    figures = [pair for pair in figures if pair not in in_words]
    facts = [*_flat("", dict(others)), *((words(name), _in_words(item, said)) for name, item in in_words)]
    blocks: list[Block] = [Facts(f"{result.preset_kind} {result.name}", tuple(facts))]
    blocks += [
        _figures(title, rows, said)
        for title, rows in (("Figures as published", figures), ("Published too, not used", unused))
        if rows
    ]
    if said:
        blocks.append(Facts("Sources", tuple((_mark(said, each), each) for each in said)))
    return Document(tuple(blocks))


def _is_figure(item: Any) -> bool:
    return isinstance(item, dict) and "value" in item


def _figures(title: str, figures: list[tuple[str, dict[str, Any]]], said: list[str]) -> Table:
    columns = (
        Column("Figure", right=False), Column("Value"),
        *(Column(name, right=False) for name in ("Unit", "Sure", "Source")),
    )  # fmt: skip
    rows = tuple(
        cells(
            [
                words(name),
                _plain(item["value"]),
                *(str(item.get(key, "")) for key in ("unit", "confidence")),
                _mark(said, _said(item)),
            ]
        )
        for name, item in figures
    )
    return Table(title, columns, rows)


def _in_words(item: dict[str, Any], said: list[str]) -> str:
    """What is published in words, with its source; how sure that is where it is not."""
    sure = item.get("confidence", "high")
    doubt = "" if sure == "high" else f" ({sure} confidence)"
    return f"{item['value']}{doubt} {_mark(said, _said(item))}"


def _mark(said: list[str], text: str) -> str:
    return f"[{said.index(text) + 1}]"


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
