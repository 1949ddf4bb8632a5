"""How what is too wide for a terminal is folded: formulas before operators, tables by columns or in their last text."""

from __future__ import annotations

import re
import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from zerocalc.render.document import Table

GAP = 1
"""Blanks between two columns of a folded table."""
LEAST_TEXT = 24
"""The narrowest column that sentences are read in."""
GLUE = "\N{NO-BREAK SPACE}"
"""Stands for a blank at which no line breaks."""
_TOGETHER = (
    re.compile(r"(?<=\d) (?=(?:[KMGTP]i?)?B\b|bytes\b|GPUs?\b|parameters\b|tokens\b|TFLOP)"),
    re.compile(r"(?<=[iG]B) (?=per GPU\b)|(?<=[iG]B per) (?=GPU\b)"),
    re.compile(r"(?<=N_d) (?== \d)|(?<=N_d =) (?=\d)"),
)
"""Blanks at which no line breaks: before a unit, in `GB per GPU`, in `N_d = 64`."""
_OPERATORS = ("+", "-", "*", "/", "//", "**", "=", "if", "else")


def kept_together(text: str) -> str:
    """The text with its numbers glued to what they count."""
    for blanks in _TOGETHER:
        text = blanks.sub(GLUE, text)
    return text


def formula_lines(line: str, width: int) -> list[str]:
    """A formula's line in as many as it needs, each but the first starting with an operator or a further argument."""
    if len(line) <= width:
        return [line]
    lead = line[: len(line) - len(line.lstrip())]
    glued = line.lstrip()
    for operator in _OPERATORS:
        glued = glued.replace(f" {operator} ", f" {operator}{GLUE}")
    glued = f"={GLUE}{glued[2:]}" if glued.startswith("= ") else glued
    broken = textwrap.wrap(
        glued,
        width,
        initial_indent=lead,
        subsequent_indent=f"{lead}    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [each.replace(GLUE, " ") for each in broken]


def folds(table: Table, widths: Sequence[int], width: int) -> list[Table]:
    """The table in parts that are narrow enough, nothing where there are none."""
    text = [] if table.columns[-1].right else _with_folded_text(table, widths, width)
    return text or _by_columns(table, widths, width)


def _with_folded_text(table: Table, widths: Sequence[int], width: int) -> list[Table]:
    """The last column's sentences broken between words, the others as they are."""
    room = width - sum(widths[:-1]) - GAP * (len(widths) - 1)
    if room < LEAST_TEXT:
        return []
    rows = []
    for row in table.rows:
        lines = textwrap.wrap(row[-1].text, room, break_long_words=False, break_on_hyphens=False)
        if any(len(line) > room for line in lines):
            return []
        rows.append((*row[:-1], replace(row[-1], text="\n".join(lines))))
    return [replace(table, rows=tuple(rows))]


def _by_columns(table: Table, widths: Sequence[int], width: int) -> list[Table]:
    """Parts with some of the columns each, all with the leading ones that name a row."""
    names = table.names or next((at for at, column in enumerate(table.columns) if column.right), 0) or 1
    room = width - sum(widths[:names]) - GAP * (names - 1)
    parts = list(_filled(range(names, len(widths)), widths, room))
    if len(parts) >= len(widths) - names:
        return []  # A column a part: rows as blocks are shorter.
    if any(sum(widths[at] + GAP for at in part) > room for part in parts):
        return []
    return [_part(table, [*range(names), *part]) for part in parts]


def _filled(columns: Sequence[int], widths: Sequence[int], room: int) -> Iterator[list[int]]:
    """The columns in order, as many together as there is room for."""
    part: list[int] = []
    for at in columns:
        if part and sum(widths[each] + GAP for each in [*part, at]) > room:
            yield part
            part = []
        part.append(at)
    if part:
        yield part


def _part(table: Table, columns: Sequence[int]) -> Table:
    return replace(
        table,
        columns=tuple(table.columns[at] for at in columns),
        rows=tuple(tuple(row[at] for at in columns) for row in table.rows),
    )
