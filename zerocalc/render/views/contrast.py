"""`explain --against`: two frameworks' answers side by side, and what each difference comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocalc.render import numbers
from zerocalc.render.document import Block, Cell, Column, Document, Heading, Note, Table, Verbatim
from zerocalc.render.views.common import by_group, label_of, next_command, notes_of, size_of, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zerocalc.render import Look
    from zerocalc.results.explanation import Contrast, ContrastLine, ContrastSide


def view(result: Contrast, look: Look) -> Document:
    """One table of every term under every strategy, then the formulas behind what differs."""
    blocks: list[Block] = [_table(result, look)]
    for line in result.lines:
        if line.difference_bytes and (line.sides or not look.quiet):
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
        )
        for line, mine, other in zip(lines, ours, theirs, strict=True)
    )
    columns = (
        Column("Strategy", right=False),
        Column("Term", right=False),
        Column(result.framework),
        Column(result.against),
        Column("Difference"),
    )
    return Table(f"{size_of(result.request)}; {look.units} per GPU at the peak", columns, rows)


def _formulas(line: ContrastLine) -> Iterator[Block]:
    """Why a line differs, and both sides' formulas with their numbers in place; equal ones once."""
    yield Heading(f"{label_of(line.strategy)}: {words(line.name)}")
    yield Note(line.because, "because")
    groups: dict[tuple[str, str, str], list[ContrastSide]] = {}
    for side in line.sides:
        groups.setdefault((side.framework, side.formula, side.substituted), []).append(side)
    for (framework, formula, substituted), sides in groups.items():
        names = ", ".join(words(side.name) for side in sides)
        text = f"{formula}\n  = {by_group(substituted)}\n  = {numbers.count(sides[0].bytes)}"
        yield Verbatim(text, f"{framework} {names}")
        yield Note(sides[0].citation, "source")
