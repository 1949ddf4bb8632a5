"""`diff`: what changed in each configuration, inputs before the figures they moved, the headline last."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from zerocalc.render import numbers
from zerocalc.render.budgets import amount, percent
from zerocalc.render.document import Block, Cell, Column, Document, Facts, Note, Table, Tone, Verbatim
from zerocalc.render.views.common import NONE, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zerocalc.render import Look
    from zerocalc.results.check import Changed, Diff, InputChange, MetricChange, TermChange

KEY = "~ changed, + new, − gone"
SIGNS = {"changed": "~", "added": "+", "removed": "−"}
SHOWN = (
    "memory.gpu.peak_bytes",
    "memory.gpu.model_states_bytes",
    "memory.cpu.bytes_per_node",
    "memory.nvme.bytes_per_node",
    "communication.sent_bytes_per_rank",
    "headroom_bytes",
    "fits",
)
"""The figures that are listed; JSON has them all."""
HEADLINE = "memory.gpu.peak_bytes"


def view(result: Diff, look: Look) -> Document:
    """The key, one part per configuration, warnings, the headline."""
    blocks: list[Block] = [Note(f"{result.base} → {result.new}; {KEY}")]
    shared = _shared(result.changes)
    if shared:
        blocks.append(Facts("~ inputs of all that changed", tuple(map(_input, shared))))
    for names, change in _alike(result.changes):
        own = [item for item in change.inputs if item not in shared]
        blocks += _blocks(names, replace(change, inputs=own), look.units)
    blocks += [Note(warning, "Warning", "warning") for warning in result.warnings]
    text = _headline(result, look.units)
    blocks.append(Verbatim(text) if look.quiet else Note(text, tone="strong"))
    return Document(tuple(blocks))


def _shared(changes: list[Changed]) -> list[InputChange]:
    """Inputs that changed alike in all of several configurations: said once."""
    changed = [change.inputs for change in changes if change.status == "changed"]
    if len(changed) < 2:
        return []
    return [item for item in changed[0] if all(item in others for others in changed[1:])]


def _input(item: InputChange) -> tuple[str, str]:
    return item.word, f"{numbers.value(item.base)} → {numbers.value(item.new)}"


def _alike(changes: list[Changed]) -> list[tuple[str, Changed]]:
    """Configurations that differ, those that changed in the same way together."""
    groups: dict[str, tuple[list[str], Changed]] = {}
    for change in changes:
        if change.status != "same":
            names, _ = groups.setdefault(repr(replace(change, name="")), ([], change))
            names.append(change.name)
    return [(", ".join(names), change) for names, change in groups.values()]


def _blocks(names: str, change: Changed, units: str) -> Iterator[Block]:
    title = f"{SIGNS[change.status]} {names}"
    rows = [_input(item) for item in change.inputs]
    rows += [
        (item.metric, _moved(item, units)) for path in SHOWN for item in change.metrics if item.metric == path
    ]
    yield Facts(title, tuple(rows))
    if change.terms:
        yield _table(names, change, units)


def _moved(item: MetricChange, units: str) -> str:
    before, after = amount(item.base, item.unit, units), amount(item.new, item.unit, units)
    if item.change is None:
        return f"{before} → {after}"
    sign = "+" if item.change > 0 else numbers.MINUS
    share = ""
    if (
        isinstance(item.base, (int, float))
        and isinstance(item.new, (int, float))
        and min(item.base, item.new) > 0
    ):
        share = f", {sign}{percent(abs(item.change) / abs(item.base))}"
    return f"{before} → {after} ({sign}{amount(abs(item.change), item.unit, units)}{share})"


def _table(names: str, change: Changed, units: str) -> Table:
    headers = ("Term", "Part", "Tier", "Before", "After", "Change")
    return Table(
        f"Terms of {names} that moved; {units} per GPU",
        tuple(Column(name, right=name in {"Before", "After", "Change"}) for name in headers),
        tuple(_row(term, units) for term in change.terms),
    )


def _row(term: TermChange, units: str) -> tuple[Cell, ...]:
    status = "added" if term.base_bytes is None else "removed" if term.new_bytes is None else "changed"
    decimals = numbers.decimals_for([term.change_bytes], units)
    tone: Tone = "bad" if term.change_bytes > 0 else "good"
    return (
        Cell(f"{SIGNS[status]} {words(term.name)}", "strong"),
        Cell(term.part),
        Cell(term.tier),
        _size(term.base_bytes, units),
        _size(term.new_bytes, units),
        Cell(numbers.headroom(term.change_bytes, units, decimals), tone),
    )


def _size(size: int | None, units: str) -> Cell:
    return NONE if size is None else Cell(numbers.in_units(size, units, numbers.decimals_for([size], units)))


def _headline(result: Diff, units: str) -> str:
    """How many differ, and the largest change of the peak."""
    counts = ", ".join(
        f"{count} {word}"
        for word, count in (
            ("changed", result.num_changed),
            ("new", result.num_added),
            ("gone", result.num_removed),
            ("unchanged", result.num_same),
        )
        if count
    )
    peaks = [
        (item, change.name)
        for change in result.changes
        for item in change.metrics
        if item.metric == HEADLINE and item.change is not None
    ]
    if not peaks:
        return f"{counts or 'nothing to compare'}; no peak moved"
    item, name = max(peaks, key=lambda pair: abs(pair[0].change or 0))
    return f"{counts}; peak per GPU of {name}: {_moved(item, units)}"
