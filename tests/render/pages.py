"""Reading a page back: its elements, its visible words, its JSON, and every way a number of it may be written."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from itertools import product
from math import ceil

from zerocalc.render import numbers
from zerocalc.render.figures import KINDS, kind_of
from zerocalc.results import TermResult

VOID = {"meta", "link", "br", "img", "input", "hr"}
_TOKEN = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?")


class Page(HTMLParser):
    """Elements in order, each with its attributes and its parents; the words that are shown; the embedded JSON."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.words, self.ticks, self.embedded = [], [], [], ""
        self._open = []
        self.feed(text)
        self.close()
        assert self._open == []
        self.answer = json.loads(self.embedded) if self.embedded else None

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), tuple(name for name, _ in self._open)))
        if tag not in VOID:
            self._open.append((tag, dict(attrs)))

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), tuple(name for name, _ in self._open)))

    def handle_endtag(self, tag):
        assert self._open.pop()[0] == tag

    def handle_data(self, data):
        tag, attributes = self._open[-1] if self._open else ("", {})
        if tag == "script":
            self.embedded += data
        elif tag == "text" and attributes.get("class") == "tick":
            self.ticks.append(data)
        elif tag != "style" and data.strip():
            self.words.append(data)

    def all(self, tag):
        return [attributes for name, attributes, _ in self.elements if name == tag]


def tokens(text):
    """The numbers in a text, as they are written."""
    return set(_TOKEN.findall(text))


def _leaves(value):
    if isinstance(value, dict):
        for each in value.values():
            yield from _leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    else:
        yield value


def _sums(answer):
    """What tables and bars add up: the terms of a state or of a kind, the calls of a step."""
    for row in answer.get("results", ()):
        if row["memory"] is None:
            continue
        for tier in ("gpu", "cpu", "nvme"):
            terms = [TermResult(**term) for term in row["memory"][tier]["terms"]]
            for phase, kind in product(row["memory"][tier]["phases"], KINDS):
                yield sum(t.bytes for t in terms if phase in t.phases and kind_of(t) == kind)
            for state in ("params", "grads", "optimizer_states"):
                yield sum(t.bytes for t in terms if t.state == state)
        yield sum(each["count"] for each in row["communication"]["collectives"])


def _written(value, units):
    """Every way in which the renderers may write a number."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, str):
        yield from tokens(value)
        return
    if isinstance(value, int):
        yield from (numbers.in_units(abs(value), units, decimals) for decimals in range(1, 5))
        yield from (str(value), numbers.count(abs(value)))
    for scale in (1, 1e12, 0.01, 1e9, 1e-6, 86400):
        yield from (numbers.short(abs(value) / scale), numbers.seconds(abs(value) / scale))
    yield from (numbers.count(ceil(abs(value))), numbers.times_psi(abs(value)), f"{abs(value):.3g}")


def allowed(answer, units="GB"):
    """Every number that a page may show for this answer."""
    found = set()
    for value in [*_leaves(answer), *_sums(answer)]:
        for text in _written(value, units):
            found |= tokens(text)
    return found | tokens("ZeRO-1 ZeRO-2 ZeRO-3 2 ")
