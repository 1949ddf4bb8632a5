"""`explain`: formula, numbers in place, result; where each number came from and where the formula stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocalc.render import numbers
from zerocalc.render.document import Block, Document, Facts, Heading, Verbatim
from zerocalc.render.views.common import by_group, label_of, notes_of, phase_label, size_of, words
from zerocalc.sources import SOURCES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zerocalc.render import Look
    from zerocalc.results.explanation import ExplainedLine, Explanation


_OF_NO_STRATEGY = {"offload", "activations"}
"""Quantities that are the same whatever is sharded."""


def view(result: Explanation, look: Look) -> Document:
    """One section per line of the quantity, then the totals and the notes."""
    blocks: list[Block] = [Heading(f"{words(result.quantity).capitalize()} of {size_of(result.request)}")]
    for line in result.lines:
        blocks += _line(line, look, "" if result.quantity in _OF_NO_STRATEGY else label_of(line.strategy))
    if result.totals:
        rows = tuple(
            (_total_name(name), _amount(amount, _unit_of(result), look))
            for name, amount in result.totals.items()
        )
        blocks.append(Facts("Totals", rows))
    blocks += notes_of(result)
    return Document(tuple(blocks))


def _total_name(name: str) -> str:
    return label_of(name) if label_of(name) != name else words(name)


def _unit_of(result: Explanation) -> str:
    units = {line.unit for line in result.lines}
    return units.pop() if len(units) == 1 else ""


def _amount(amount: Any, unit: str, look: Look) -> str:
    """A value with its unit; bytes both rounded and whole."""
    if unit == "byte" and isinstance(amount, int):
        return f"{numbers.with_unit(amount, look.units)} ({numbers.count(amount)} bytes)"
    return f"{numbers.value(amount)} {unit}".rstrip()


def _line(line: ExplainedLine, look: Look, strategy: str) -> Iterator[Block]:
    where = ", ".join(part for part in (line.part, line.tier) if part)
    title = f"{strategy}: {words(line.name)}".removeprefix(": ") + (f" ({where})" if where else "")
    yield Heading(f"{title} = {_amount(line.value, line.unit, look)}")
    yield Verbatim(f"{line.formula}\n  = {by_group(line.substituted)}\n  = {numbers.value(line.value)}")
    rows = [(item.name, f"{numbers.value(item.value)}  ({item.origin})") for item in line.inputs]
    if line.phases:
        rows.append(("live in", ", ".join(phase_label(phase).lower() for phase in line.phases)))
    source = SOURCES.get(line.source)
    cited = line.citation or (f"{source.title}, {source.section}" if source else line.source)
    rows.append(("source", cited))
    if source is not None and source.url not in cited:
        rows.append(("", source.url))
    yield Facts("", tuple(rows))
