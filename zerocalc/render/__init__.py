"""Results as text. Every function here is pure: a result and a look in, a string out.

A format is a row of `FORMATS`. Formats for machines read the result; formats for people read the `Document` that the
view of the result's kind lays out (`render/views`). A new kind of answer adds a row to `VIEWS`, a new format one to
`FORMATS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from zerocalc.errors import UsageError, unknown_name
from zerocalc.records import Record

if TYPE_CHECKING:
    from zerocalc.render.document import Document


class Format(NamedTuple):
    """Where a format is written, the file suffixes that choose it, and what it is."""

    module: str
    suffixes: tuple[str, ...]
    description: str
    for_people: bool = False
    kinds: tuple[str, ...] = ()
    """The kinds of answer it is for; empty means all."""
    pictures: Literal["", "asked", "always"] = ""
    """Whether it draws, or carries what is drawn: never, under `--chart`, or always."""


FORMATS: dict[str, Format] = {
    "table": Format(
        "zerocalc.render.table", (".txt",), "tables for a terminal", for_people=True, pictures="asked"
    ),
    "json": Format(
        "zerocalc.render.json", (".json",), "one JSON object, the contract for scripts", pictures="asked"
    ),
    "jsonl": Format("zerocalc.render.jsonl", (".jsonl", ".ndjson"), "one result object a line"),
    "csv": Format("zerocalc.render.csv", (".csv",), "long form: one row per strategy and term, whole bytes"),
    "markdown": Format(
        "zerocalc.render.markdown",
        (".md", ".markdown"),
        "tables for a page or a comment",
        for_people=True,
        pictures="asked",
    ),
    "html": Format(
        "zerocalc.render.html",
        (".html", ".htm"),
        "one page that needs nothing else",
        for_people=True,
        pictures="always",
    ),
    "svg": Format(
        "zerocalc.render.picture",
        (".svg",),
        "a picture: bars, and memory over the data-parallel degree",
        kinds=("compare", "estimate"),
        pictures="always",
    ),
    "junit": Format("zerocalc.render.junit", (".xml",), "a test report for CI", kinds=("check",)),
    "github": Format("zerocalc.render.github", (), "annotations on a pull request", kinds=("check",)),
}

VIEWS: dict[str, str] = {
    "compare": "zerocalc.render.views.compare",
    "estimate": "zerocalc.render.views.estimate",
    "solve": "zerocalc.render.views.solve",
    "sweep": "zerocalc.render.views.sweep",
    "plan": "zerocalc.render.views.plan",
    "explain": "zerocalc.render.views.explain",
    "contrast": "zerocalc.render.views.contrast",
    "params": "zerocalc.render.views.params",
    "presets": "zerocalc.render.views.presets",
    "preset": "zerocalc.render.views.presets",
    "check": "zerocalc.render.views.check",
    "diff": "zerocalc.render.views.diff",
}


@dataclass(kw_only=True, eq=False, repr=False)
class Look(Record):
    """How an answer is to look; machine formats ignore all of it."""

    width: int | None = None
    """Columns of the terminal; null when there is none, then tables keep their natural width."""
    units: str = "GB"
    color: bool = False
    ascii: bool = False
    chart: bool = False
    """Whether pictures made of text stand after the first table."""
    quiet: bool = False
    """Only the tables, no sentences."""
    arguments: str = ""
    """What the user typed after the command, quoted for a shell, for the next command that is suggested."""


def formats_of(kind: str) -> tuple[str, ...]:
    """The formats that an answer of a kind can be written in."""
    return tuple(name for name, row in FORMATS.items() if not row.kinds or kind in row.kinds)


def render(result: Any, fmt: str, look: Look | None = None) -> str:
    """A result in one of its formats, ending with a newline. Raises UnknownNameError for another format."""
    known = formats_of(result.kind)
    if fmt not in known:
        raise unknown_name("format", fmt, list(known), hint=f"one of {', '.join(known)}")
    text: str = import_module(FORMATS[fmt].module).render(result, look or Look())
    return text if text.endswith("\n") else text + "\n"


def document_of(result: Any, look: Look) -> Document:
    """The result laid out for people, by the view of its kind, in the look's character set."""
    from zerocalc.render.document import in_ascii

    document: Document = import_module(VIEWS[result.kind]).view(result, look)
    if look.chart:
        document = _with_charts(document, result, look)
    if look.quiet:
        document = document.answer_only()
    return in_ascii(document) if look.ascii else document


def _with_charts(document: Document, result: Any, look: Look) -> Document:
    """The document with its charts after the first table."""
    from zerocalc.render.chart import charts
    from zerocalc.render.document import Document, Table

    blocks = list(document.blocks)
    first = next((index for index, block in enumerate(blocks) if isinstance(block, Table)), -1)
    return Document((*blocks[: first + 1], *charts(result, look), *blocks[first + 1 :]))


def format_for(suffix: str) -> str:
    """The format that a file's suffix chooses. Raises UsageError for a suffix that chooses none."""
    for name, row in FORMATS.items():
        if suffix.lower() in row.suffixes:
            return name
    known = " ".join(suffix for row in FORMATS.values() for suffix in row.suffixes)
    raise UsageError(
        f"no format is written to {suffix or 'a file without a suffix'}", hint=f"give -f, or one of {known}"
    )
