"""Text for a terminal. The only module that imports rich.

No digit is ever wrapped or cropped: a table wider than the terminal is turned on its side (its first column becomes the
header), folded (`render/fold.py`), and where nothing fits, every row becomes a block of lines. Without a terminal tables
keep their natural width. Only sentences are wrapped, between words, and formulas, before their operators.
"""

from __future__ import annotations

import textwrap
from io import StringIO
from typing import TYPE_CHECKING, Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from zerocalc.render import document_of
from zerocalc.render.document import Block, Cell, Chart, Column, Facts, Heading, Note, Table, Tone, Verbatim
from zerocalc.render.fold import GLUE, folds, formula_lines, kept_together

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zerocalc.render import Look

PROSE_WIDTH = 100
STYLES: dict[Tone, str] = {
    "plain": "", "good": "green", "bad": "red", "faint": "dim", "strong": "bold", "warning": "yellow", "link": "cyan",
    "params": "blue", "grads": "cyan", "optimizer_states": "yellow", "activations": "green", "logits": "magenta",
    "transients": "white",
}  # fmt: skip
_BOX = box.Box("    \n    \n ── \n    \n ── \n ── \n    \n    \n")
_ASCII_BOX = box.Box("    \n    \n -- \n    \n -- \n -- \n    \n    \n", ascii=True)
_GAPS = (2, 1)
"""Blanks between two columns, the better first: one is the divider, the other padding."""
_MOST_ON_ITS_SIDE = 8
"""Rows that may become columns."""


def render(result: Any, look: Look) -> str:
    """The result's document at the look's width."""
    document = document_of(result, look)
    parts: list[str] = []
    previous: Block | None = None
    for block in document.blocks:
        if previous is not None and _apart(previous, block):
            parts.append("")
        parts.append(_text(block, look))
        previous = block
    return "\n".join(parts)


def _apart(above: Block, below: Block) -> bool:
    """Whether an empty line stands between two blocks; notes of a kind stay together."""
    if isinstance(above, Heading):
        return False
    return not (isinstance(above, (Note, Verbatim)) and isinstance(below, (Note, Verbatim)))


def _text(block: Block, look: Look) -> str:
    match block:
        case Table():
            return _table(block, look)
        case Facts():
            return _facts(block, look)
        case Chart():
            return _chart(block, look)
        case Heading():
            return _wrapped(Note(block.text, tone="strong"), look)
        case Note():
            return _wrapped(block, look)
        case Verbatim():
            return _styled(_verbatim(block, look), block.tone, look)


def _console(width: int, look: Look) -> Console:
    """A console that reads nothing from the environment."""
    return Console(
        file=StringIO(),
        width=width,
        height=100,
        force_terminal=look.color,
        color_system="standard" if look.color else None,
        no_color=not look.color,
        highlight=False,
        legacy_windows=False,
        _environ={},
    )


def _printed(renderable: Any, width: int, look: Look) -> str:
    console = _console(width, look)
    console.print(renderable, soft_wrap=isinstance(renderable, Text))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.rstrip("\n").split("\n"))


def _styled(text: str, tone: Tone, look: Look) -> str:
    if not look.color or tone == "plain":
        return text
    return "\n".join(
        _printed(Text(line, STYLES[tone]), max(1, cell_len(line)), look) for line in text.split("\n")
    )


def _wrapped(note: Note, look: Look) -> str:
    """A sentence broken between words; continuation lines stand under the text, not under its label."""
    label = f"{note.label}: " if note.label else ""
    width = max(20, look.width or PROSE_WIDTH)
    indent = " " * min(len(label), 4)
    text = kept_together(label + note.text)
    lines = textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return _styled("\n".join(lines).replace(GLUE, " "), note.tone, look)


def _verbatim(block: Verbatim, look: Look) -> str:
    """A command as it is; a formula's lines, where too wide, broken before operators."""
    text = f"{block.label}: {block.text}" if block.label else f"  {block.text}"
    if look.width is None or block.tone == "link":
        return text
    return "\n".join(broken for line in text.split("\n") for broken in formula_lines(line, look.width))


def _table(table: Table, look: Look) -> str:
    title = _wrapped(Note(table.title, tone="strong"), look)
    shapes = ((shape, gap) for shape in _shapes(table) for gap in _GAPS)
    fitting = next((pair for pair in shapes if look.width is None or _width(*pair) <= look.width), None)
    if fitting is not None:
        return f"{title}\n{_body(*fitting, look)}"
    folded = folds(table, _widths(table), look.width or PROSE_WIDTH)
    if folded:
        return f"{title}\n" + "\n\n".join(_body(part, _GAPS[-1], look) for part in folded)
    return "\n\n".join([title, *_row_blocks(table, look)])


def _body(table: Table, gap: int, look: Look) -> str:
    return _printed(_rich(table, gap, look), _width(table, gap), look)


def _shapes(table: Table) -> Iterator[Table]:
    """The table as it is, and on its side where that can still be read."""
    yield table
    if 1 < len(table.rows) <= _MOST_ON_ITS_SIDE:
        yield _on_its_side(table)


def _on_its_side(table: Table) -> Table:
    """Rows become columns; their names become the headers."""
    head = [Column(table.columns[0].header, right=False), *(Column(row[0].text) for row in table.rows)]
    rows = [
        (Cell(column.header), *(row[index] for row in table.rows))
        for index, column in enumerate(table.columns)
        if index > 0
    ]
    return Table(table.title, tuple(head), tuple(rows))


def _widths(table: Table) -> list[int]:
    return [
        max(
            [
                cell_len(column.header),
                *(cell_len(line) for row in table.rows for line in row[index].text.split("\n")),
            ]
        )
        for index, column in enumerate(table.columns)
    ]


def _width(table: Table, gap: int) -> int:
    return sum(_widths(table)) + gap * (len(table.columns) - 1)


def _rich(table: Table, gap: int, look: Look) -> RichTable:
    grid = RichTable(
        box=_ASCII_BOX if look.ascii else _BOX,
        padding=(0, gap - 1),
        collapse_padding=True,
        pad_edge=False,
        show_edge=False,
        header_style="bold" if look.color else "",
    )
    for column, width in zip(table.columns, _widths(table), strict=True):
        grid.add_column(
            Text(column.header),
            justify="right" if column.right else "left",
            no_wrap=True,
            min_width=width,
        )
    for index, row in enumerate(table.rows):
        last_above = table.total and index == len(table.rows) - 2
        grid.add_row(*(Text(cell.text, STYLES[cell.tone]) for cell in row), end_section=last_above)
    return grid


def _row_blocks(table: Table, look: Look) -> Iterator[str]:
    """Every row as lines of `header  value`, for the narrowest terminals."""
    label = max(cell_len(column.header) for column in table.columns[1:])
    for row in table.rows:
        lines = [_styled(row[0].text, "strong", look)]
        for column, cell in zip(table.columns[1:], row[1:], strict=True):
            if cell.text:
                lines.append(
                    f"  {column.header:<{label}}  {_styled(_in_block(column, cell, label, look), cell.tone, look)}"
                )
        yield "\n".join(lines)


def _in_block(column: Column, cell: Cell, label: int, look: Look) -> str:
    """A cell's text; a sentence broken between words, under itself."""
    if column.right or look.width is None:
        return cell.text
    indent = " " * (label + 4)
    broken = textwrap.wrap(
        indent + cell.text,
        max(look.width, label + 20),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(broken).lstrip()


def _chart(chart: Chart, look: Look) -> str:
    """A picture's lines under its title, colour or none."""
    lines = ["".join(_styled(cell.text, cell.tone, look) for cell in line).rstrip() for line in chart.lines]
    return "\n".join([_wrapped(Note(chart.title, tone="strong"), look), *lines])


def _facts(facts: Facts, look: Look) -> str:
    """Labelled values; where they would not stand beside their labels, they stand below them."""
    width = look.width or PROSE_WIDTH
    label = max((cell_len(name) for name, _ in facts.rows), default=0)
    longest = max((cell_len(word) for _, text in facts.rows for word in text.split()), default=0)
    beside = label + 4 + min(longest, 30) <= width
    lines = [_wrapped(Note(facts.title, tone="strong"), look)] if facts.title else []
    for name, text in facts.rows:
        indent = " " * (label + 4 if beside else 4)
        broken = textwrap.wrap(
            kept_together(text),
            width,
            initial_indent=indent,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        broken = [line.replace(GLUE, " ") for line in broken]
        if beside and broken:
            lines += [f"  {name:<{label}}  {broken[0].lstrip()}", *broken[1:]]
        else:
            lines += [f"  {name}".rstrip(), *broken]
    return "\n".join(lines)
