"""Rows of a sweep as text, chunk by chunk: what has been written is whole, however long the sweep goes on."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from zerocalc.errors import UsageError
from zerocalc.render import render
from zerocalc.render.views.sweep import Page
from zerocalc.results import plain

if TYPE_CHECKING:
    from zerocalc.render import Look
    from zerocalc.results.sweep import Refused, SweepHead

Row = tuple[Any, ...]
PAGE = 1000
"""Rows of one table; a longer sweep is several tables."""


class Stream(Protocol):
    """A format that is written as it goes."""

    def opening(self) -> str:
        """What stands before the first row."""

    def rows(self, rows: Sequence[Row]) -> str:
        """Some rows."""

    def closing(self, num_rows: int, refused: Sequence[Refused]) -> str:
        """What stands after the last row."""


class JsonLines:
    """One object a line."""

    def __init__(self, head: SweepHead, look: Look) -> None:
        self._columns = head.columns

    def opening(self) -> str:
        """Nothing: every line stands alone."""
        return ""

    def rows(self, rows: Sequence[Row]) -> str:
        """A line each."""
        encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
        return "".join(f"{encode(dict(zip(self._columns, row, strict=True)))}\n" for row in rows)

    def closing(self, num_rows: int, refused: Sequence[Refused]) -> str:
        """Nothing."""
        return ""


class Csv:
    """A header with the columns' names, then a line each."""

    def __init__(self, head: SweepHead, look: Look) -> None:
        self._columns = head.columns

    def opening(self) -> str:
        """The header."""
        return self._lines([tuple(self._columns)])

    def rows(self, rows: Sequence[Row]) -> str:
        """Whole numbers as they are, true and false as words, nothing for what is not known."""
        words = {True: "true", False: "false"}
        return self._lines([tuple(words[v] if isinstance(v, bool) else v for v in row) for row in rows])

    def closing(self, num_rows: int, refused: Sequence[Refused]) -> str:
        """Nothing."""
        return ""

    @staticmethod
    def _lines(rows: Sequence[Row]) -> str:
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(rows)
        return out.getvalue()


class JsonObject:
    """One object; its rows stream inside it, a line each."""

    def __init__(self, head: SweepHead, look: Look) -> None:
        self._head = head
        self._started = False

    def opening(self) -> str:
        """What is known before the first row."""
        text = json.dumps(plain(self._head), indent=2, ensure_ascii=False, allow_nan=False)
        return f'{text.removesuffix("}").rstrip()},\n  "rows": ['

    def rows(self, rows: Sequence[Row]) -> str:
        """Objects with commas between."""
        encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
        parts = [f"    {encode(dict(zip(self._head.columns, row, strict=True)))}" for row in rows]
        before = ",\n" if self._started else "\n"
        self._started = self._started or bool(parts)
        return before + ",\n".join(parts) if parts else ""

    def closing(self, num_rows: int, refused: Sequence[Refused]) -> str:
        """How many there were, and why some could not be."""
        tail = json.dumps(
            {"num_rows": num_rows, "refused": plain(list(refused))}, indent=2, ensure_ascii=False
        )
        end = "\n  " if self._started else ""
        return f"{end}],\n{tail.removeprefix('{').lstrip(chr(10))}\n"


class Pages:
    """Tables of at most a thousand rows, one after the other."""

    def __init__(self, head: SweepHead, look: Look, fmt: str) -> None:
        self._head, self._look, self._fmt = head, look, fmt
        self._waiting: list[Row] = []
        self._written = False

    def opening(self) -> str:
        """Nothing: a table is written once its widths are known."""
        return ""

    def rows(self, rows: Sequence[Row]) -> str:
        """Every page that is full."""
        self._waiting += rows
        text = ""
        while len(self._waiting) > PAGE:
            page, self._waiting = self._waiting[:PAGE], self._waiting[PAGE:]
            text += self._laid_out(Page(head=self._head, rows=page))
        return text

    def closing(self, num_rows: int, refused: Sequence[Refused]) -> str:
        """The last page and the notes."""
        return self._laid_out(Page(head=self._head, rows=self._waiting, num_rows=num_rows, refused=refused))

    def _laid_out(self, page: Page) -> str:
        text = ("\n" if self._written else "") + render(page, self._fmt, self._look)
        self._written = True
        return text


def stream(fmt: str, head: SweepHead, look: Look) -> Stream:
    """The writer of a format. Raises UsageError for one that does not stream."""
    if fmt in {"table", "markdown"}:
        return Pages(head, look, fmt)
    writers: dict[str, type[JsonLines | Csv | JsonObject]] = {
        "jsonl": JsonLines,
        "csv": Csv,
        "json": JsonObject,
    }
    if fmt not in writers:
        raise UsageError(f"a sweep is not written as {fmt}", hint="one of table, jsonl, csv, json, markdown")
    return writers[fmt](head, look)
