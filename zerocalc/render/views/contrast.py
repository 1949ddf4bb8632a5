"""`explain --against`: two frameworks' answers side by side, and what each difference comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocalc.render import numbers
from zerocalc.render.document import Block, Cell, Column, Document, Heading, Note, Table, Verbatim
from zerocalc.render.views.common import label_of, next_command, notes_of, size_of, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zerocalc.render import Look
    from zerocalc.results import Contrast, ContrastLine


def view(result: Contrast, look: Look) -> Document:
    """One table of every term under every strategy, then the formulas behind what differs."""
    blocks: list[Block] = [_table(result, look)]
    for line in result.lines:
        if line.difference_bytes and line.sides:
            blocks += _formulas(line)
    blocks += notes_of(result)
    blocks.append(next_command(look, "compare", f"--framework {result.framework},{result.against}"))
    return Document(tuple(blocks))


def _table(result: Contrast, look: Look) -> Table:
    lines = result.lines
    ours = numbers.column([line.bytes for line in lines], look.units)
    theirs = numbers.column([line.against_bytes for line in lines], look.units)
    decimals = numbers.decimals_for((line.difference_bytes for line in lines), look.units)
    rows = tuple(
        (
            Cell(label_of(line.strategy), "strong"),
            Cell(words(line.name)),
            Cell(mine),
            Cell(other),
            Cell(
                numbers.headroom(line.difference_bytes, look.units, decimals)
                if line.difference_bytes
                else "0"
            ),
            Cell(line.because),
        )
        for line, mine, other in zip(lines, ours, theirs, strict=True)
    )
    columns = (
        Column("Strategy", right=False),
        Column("Term", right=False),
        Column(result.framework),
        Column(result.against),
        Column("Difference"),
        Column("Because", right=False),
    )
    return Table(f"{size_of(result.request)}; {look.units} per GPU at the peak", columns, rows)


def _formulas(line: ContrastLine) -> Iterator[Block]:
    """Both sides of one difference, with their numbers in place and their sources."""
    yield Heading(f"{label_of(line.strategy)}: {words(line.name)}")
    for side in line.sides:
        yield Verbatim(
            f"{side.formula}\n  = {side.substituted}\n  = {numbers.count(side.bytes)}", side.framework
        )
        yield Note(side.citation, "source")
