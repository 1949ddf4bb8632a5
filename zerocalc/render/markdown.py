"""Markdown for a page, an issue or a pull-request comment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocalc.render import document_of
from zerocalc.render.document import Block, Cell, Chart, Facts, Heading, Note, Table, Verbatim

if TYPE_CHECKING:
    from zerocalc.render import Look


def render(result: Any, look: Look) -> str:
    """The result's document: tables as pipe tables, sentences as a list below them."""
    text = ""
    previous: Block | None = None
    for block in document_of(result, look).blocks:
        listed = _is_listed(block) and _is_listed(previous)
        text += ("" if previous is None else "\n" if listed else "\n\n") + _block(block)
        previous = block
    return text


def _is_listed(block: Block | None) -> bool:
    """Whether a block is an item of a list: a sentence, or a command of one line."""
    return isinstance(block, Note) or (isinstance(block, Verbatim) and "\n" not in block.text)


def _block(block: Block) -> str:  # noqa: PLR0911  (one per kind of block)
    match block:
        case Table():
            return _table(block)
        case Facts():
            rows = "\n".join(f"| {_escaped(name)} | {_escaped(text)} |" for name, text in block.rows)
            title = f"**{_escaped(block.title)}**\n\n" if block.title else ""
            return f"{title}| | |\n| --- | --- |\n{rows}"
        case Chart():
            lines = "\n".join("".join(cell.text for cell in line).rstrip() for line in block.lines)
            return f"**{_escaped(block.title)}**\n\n```text\n{lines}\n```"
        case Heading():
            return f"### {_escaped(block.text)}"
        case Note():
            label = f"**{block.label}:** " if block.label else ""
            return f"- {label}{_escaped(block.text)}"
        case Verbatim():
            label = f"{block.label}: " if block.label else ""
            if "\n" in block.text:
                return f"{label}\n\n```text\n{block.text}\n```".lstrip()
            return f"- {label}`{block.text}`"


def _table(table: Table) -> str:
    header = " | ".join(_escaped(column.header) for column in table.columns)
    rule = " | ".join("---:" if column.right else "---" for column in table.columns)
    rows = "\n".join(f"| {' | '.join(_cell(cell) for cell in row)} |" for row in table.rows)
    return f"**{_escaped(table.title)}**\n\n| {header} |\n| {rule} |\n{rows}"


def _cell(cell: Cell) -> str:
    text = _escaped(cell.text)
    return f"**{text}**" if cell.tone in {"good", "bad", "strong"} and text else text


def _escaped(text: str) -> str:
    """The text with the characters that Markdown would read as its own written out."""
    for character in ("\\", "|", "*", "_", "`", "<", "["):
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split())
