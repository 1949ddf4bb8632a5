"""An answer laid out for people, before any format is chosen: tables, sentences, commands. Plain data, all strings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

Tone = Literal[
    "plain", "good", "bad", "faint", "strong", "warning", "link",
    "params", "grads", "optimizer_states", "activations", "logits", "transients",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell's text and how it should strike the eye; the words carry the meaning, the tone repeats it."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Column:
    """A header and whether the numbers below it align right."""

    header: str
    right: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns; the first column names the row. The unit stands in the title."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    total: bool = False
    """Whether the last row sums the ones above."""
    names: int = 0
    """How many of the first columns name a row; 0 stands for those that align left."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Labelled values, one a line."""

    title: str
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence, with the word that says what kind it is (`Assumed`, `Not counted`, `Warning`)."""

    text: str
    label: str = ""
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Heading:
    """A line that opens a section."""

    text: str


@dataclass(frozen=True, slots=True)
class Verbatim:
    """A command, shown as it is, or a formula, which may be broken before its operators."""

    text: str
    label: str = ""
    tone: Tone = "plain"


Line = tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture made of text: lines of cells, shown as they are."""

    title: str
    lines: tuple[Line, ...]


Block = Table | Facts | Note | Heading | Verbatim | Chart


@dataclass(frozen=True, slots=True)
class Document:
    """Blocks from top to bottom."""

    blocks: tuple[Block, ...] = field(default_factory=tuple)

    def answer_only(self) -> Document:
        """The answer without the sentences around it and the suggested command."""
        return Document(
            tuple(block for block in self.blocks if not isinstance(block, Note) and not _suggests(block))
        )


def _suggests(block: Block) -> bool:
    return isinstance(block, Verbatim) and block.tone == "link"


def cells(row: Sequence[str | Cell]) -> tuple[Cell, ...]:
    """A row from plain strings and cells."""
    return tuple(item if isinstance(item, Cell) else Cell(item) for item in row)


_ASCII = {
    "Ψ": " Psi", "−": "-", "–": "-", "—": "-", "×": "x", "·": "*", "…": "...", "≥": ">=", "≤": "<=", "→": "->",
    "÷": "/", "∞": "infinity", "²": "^2", "Σ": "sum", "’": "'",
}  # fmt: skip


def ascii_text(text: str) -> str:
    """The text in ASCII: the symbols by name, anything else escaped so that nothing is lost."""
    for symbol, plain in _ASCII.items():
        text = text.replace(symbol, plain)
    return text.encode("ascii", "backslashreplace").decode("ascii")


def in_ascii(document: Document) -> Document:
    """The same document with ASCII text only."""
    return Document(tuple(_block_in_ascii(block) for block in document.blocks))


def _block_in_ascii(block: Block) -> Block:
    match block:
        case Table():
            return replace(
                block,
                title=ascii_text(block.title),
                columns=tuple(replace(c, header=ascii_text(c.header).strip()) for c in block.columns),
                rows=tuple(tuple(replace(c, text=ascii_text(c.text)) for c in row) for row in block.rows),
            )
        case Facts():
            rows = tuple((ascii_text(name), ascii_text(text)) for name, text in block.rows)
            return replace(block, title=ascii_text(block.title), rows=rows)
        case Chart():
            lines = tuple(tuple(replace(c, text=ascii_text(c.text)) for c in line) for line in block.lines)
            return replace(block, title=ascii_text(block.title), lines=lines)
        case Heading():
            return replace(block, text=ascii_text(block.text))
        case Note() | Verbatim():
            return replace(block, text=ascii_text(block.text), label=ascii_text(block.label))
