"""One self-contained page: no network, no script, no font but the reader's; the answer's JSON lies inside it.

The page says what a terminal says, from the same document, with pictures and with what the answer rests on. It may load
nothing (its own policy forbids it); light or dark, wide or narrow is the style sheet's work.
"""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

from zerocalc.render.document import Block, Cell, Chart, Facts, Heading, Note, Table, Verbatim
from zerocalc.render.picture import Picture, pictures
from zerocalc.render.svg import figure, stylesheet, tag
from zerocalc.render.views import report
from zerocalc.results import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from zerocalc.render import Look
    from zerocalc.render.views.report import Section, Verdict

WIDTHS = {"wide": 840, "narrow": 340}
"""Pixels of each picture's two drawings; the style sheet shows the one that suits the window."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
TONES = {"good": "good", "bad": "bad", "faint": "faint", "strong": "strong", "warning": "warning"}


def render(result: Any, look: Look) -> str:
    """The whole page."""
    answer, notes, following = report.answer(result, look)
    sections = [_section(answer)]
    if getattr(result, "results", None) and result.kind in {"compare", "estimate"}:
        sections.insert(0, _pictures(result, look.units))
    sections += [_section(notes)] if notes else []
    sections += [_section(section) for section in report.behind(result, look)]
    head = [_header(result, look), _verdicts(report.verdicts(result, look))]
    main = "\n".join(part for part in [*head, *sections, _next(following)] if part)
    footer = f"<footer>{escape(result.tool.name)} {escape(result.tool.version)}; {_JSON_NOTE}</footer>"
    body = f'<a class="skip" href="#main">To the answer</a>\n<main id="main">\n{main}\n</main>\n{footer}\n{_data(result)}'
    return _PAGE.format(title=escape(report.title_of(result)), policy=POLICY, style=stylesheet(), body=body)


_JSON_NOTE = "the numbers of this page are in its source, as JSON"
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def _data(result: Any) -> str:
    """The answer itself, as `--format json` writes it; no `<` in it can end the element."""
    text = json.dumps(plain(result), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    return f'<script type="application/json" id="json">{text}</script>'


def _header(result: Any, look: Look) -> str:
    machine = report.machine_line(result, look.units)
    line = f"<p>{escape(machine)}</p>" if machine else ""
    return f"<header><h1>{escape(report.title_of(result))}</h1>{line}</header>"


def _verdicts(verdicts: Iterable[Verdict]) -> str:
    """Every configuration's verdict at a glance."""
    items = [
        f'<li class="{_verdict_class(each)}"><strong>{escape(each.name)}</strong>'
        f'<span class="amount">{escape(each.peak)}</span><span>{escape(each.words)}</span></li>'
        for each in verdicts
    ]
    return (
        f'<ul class="verdicts" aria-label="Verdicts: peak memory per GPU">{"".join(items)}</ul>'
        if items
        else ""
    )


def _verdict_class(verdict: Verdict) -> str:
    return "unknown" if verdict.fits is None else "good" if verdict.fits else "bad"


def _pictures(result: Any, units: str) -> str:
    """Every picture twice, of which the style sheet shows one."""
    drawn = [list(pictures(result, units, width=width, name=name)) for name, width in WIDTHS.items()]
    figures = [_figure(each) for each in zip(*drawn, strict=True)]
    return f'<section aria-labelledby="pictures"><h2 id="pictures">Memory per GPU</h2>{"".join(figures)}</section>'


def _figure(variants: tuple[Picture, ...]) -> str:
    drawings = "".join(
        figure(each.drawing, width=width, title=each.title, name=each.name, class_=name)
        for each, (name, width) in zip(variants, WIDTHS.items(), strict=True)
    )
    return f"<figure><figcaption>{escape(variants[0].title)}</figcaption>{drawings}</figure>"


def _section(section: Section) -> str:
    blocks = "\n".join(_listed(section.blocks))
    if section.folded:
        return f"<details><summary>{escape(section.title)}</summary>\n{blocks}\n</details>"
    name = section.title.lower().replace(" ", "-").replace(",", "")
    return f'<section aria-labelledby="{name}">\n<h2 id="{name}">{escape(section.title)}</h2>\n{blocks}\n</section>'


def _listed(blocks: Iterable[Block]) -> Iterator[str]:
    """The blocks as elements; sentences that follow each other become one list."""
    items: list[str] = []
    for block in blocks:
        if isinstance(block, Note):
            items.append(f"<li>{_sentence(block)}</li>")
            continue
        if items:
            yield f"<ul>{''.join(items)}</ul>"
            items = []
        yield _element(block)
    if items:
        yield f"<ul>{''.join(items)}</ul>"


def _sentence(note: Note) -> str:
    label = (
        f'<strong class="{TONES.get(note.tone, "label")}">{escape(note.label)}:</strong> '
        if note.label
        else ""
    )
    return label + escape(note.text)


def _element(block: Block) -> str:
    match block:
        case Table():
            return _table(block)
        case Facts():
            rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in block.rows)
            return (f"<h3>{escape(block.title)}</h3>" if block.title else "") + f"<dl>{rows}</dl>"
        case Heading():
            return f"<h3>{escape(block.text)}</h3>"
        case Note():
            return f"<p>{_sentence(block)}</p>"
        case Verbatim() | Chart():
            return f'<pre tabindex="0">{escape(_plain_text(block))}</pre>'


def _plain_text(block: Verbatim | Chart) -> str:
    if isinstance(block, Verbatim):
        return f"{block.label}: {block.text}" if block.label else block.text
    return "\n".join("".join(cell.text for cell in line).rstrip() for line in block.lines)


def _table(table: Table) -> str:
    """A table that scrolls by itself where it is too wide, by finger or by arrow keys."""
    head = "".join(
        tag("th", escape(c.header), scope="col", class_=_side(right=c.right)) for c in table.columns
    )
    rows = []
    for index, row in enumerate(table.rows):
        last = table.total and index == len(table.rows) - 1
        shown = zip(row, table.columns, strict=True)
        row_cells = [_cell(cell, first=place == 0, right=c.right) for place, (cell, c) in enumerate(shown)]
        rows.append(f"<tr{_class('total' if last else '')}>{''.join(row_cells)}</tr>")
    inside = (
        f"<table><caption>{escape(table.title)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table>"
    )
    region = tag("div", inside, class_="scroll", tabindex=0, role="region", aria_label=table.title)
    return f'<p class="caption" aria-hidden="true">{escape(table.title)}</p>{region}'


def _side(*, right: bool) -> str | None:
    return "right" if right else None


def _cell(cell: Cell, *, first: bool, right: bool) -> str:
    classes = " ".join(filter(None, (_side(right=right), TONES.get(cell.tone))))
    words = escape(cell.text)
    if first:
        return f'<th scope="row"{_class(classes)}>{words}</th>'
    return f"<td{_class(classes)}>{words}</td>"


def _class(classes: str) -> str:
    return f' class="{classes}"' if classes else ""


def _next(command: str) -> str:
    if not command:
        return ""
    return f'<section aria-labelledby="next"><h2 id="next">Next</h2><pre tabindex="0">{escape(command)}</pre></section>'
