"""The page: needs nothing else, can be read by anyone, and shows no number that is not in its JSON."""

import re
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest

import zerocalc
from zerocalc.questions.curve import curves
from zerocalc.render import Look, numbers, render
from zerocalc.render.svg import stylesheet
from zerocalc.results import plain

from .answers import KEYS, every_answer
from .pages import Page, allowed, tokens
from .pictured import PICTURED, pictured

EVERY = [*PICTURED, *(key for key in KEYS if not key.startswith(("compare", "estimate")))]


def _result(key):
    return pictured(key) if key in PICTURED else every_answer()[key]


@cache
def _page(key, units="GB"):
    return Page(render(_result(key), "html", Look(arguments="70b --dp 64", units=units)))


@pytest.mark.parametrize("key", EVERY)
def test_the_page_carries_the_answers_own_json(key):
    assert _page(key).answer == plain(_result(key))


@pytest.mark.parametrize("units", ["GB", "GiB"])
@pytest.mark.parametrize("key", PICTURED)
def test_every_number_on_the_page_is_in_its_json(key, units):
    page = _page(key, units)
    known = allowed(page.answer, units) | tokens("70b --dp 64 --gpu 80GB")
    version = tokens(page.answer["tool"]["version"])
    if capacity := page.answer["request"].get("capacity_bytes", {}).get("value"):
        known |= tokens(numbers.with_unit(capacity, "GiB"))  # A named GPU's size is shown in both units.
    for words in page.words:
        assert tokens(words) - known - version == set(), words


@pytest.mark.parametrize("key", PICTURED)
def test_every_number_in_the_picture_is_in_the_json(key):
    page = Page(render(pictured(key), "svg"))
    known = allowed(plain(pictured(key)))
    for words in page.words:
        assert tokens(words) - known == set(), words


@pytest.mark.parametrize("key", EVERY)
def test_the_page_loads_nothing_and_runs_nothing(key):
    page = _page(key)
    for tag, attributes, _ in page.elements:
        assert tag not in {"iframe", "object", "embed", "base", "form"}
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in {"src", "href", "xlink:href", "action", "srcset", "data"}:
                assert value.startswith(("#", "data:,"))
    assert [attributes.get("type") for attributes in page.all("script")] == ["application/json"]
    policy = next(meta for meta in page.all("meta") if "http-equiv" in meta)
    assert "default-src 'none'" in policy["content"]
    assert "@import" not in stylesheet()
    assert set(re.findall(r"url\(", stylesheet())) == set()


def test_hostile_names_stay_text():
    evil = "</script><img src=x onerror=alert(1)>&\"'"
    result = replace(pictured("compare-bare"), assumptions=[evil], warnings=[evil])
    page = Page(render(result, "html", Look(arguments=evil)))
    assert page.all("img") == []
    assert page.answer["assumptions"] == [evil]
    assert sum(evil in words for words in page.words) >= 3


@pytest.mark.parametrize("key", EVERY)
def test_readers_that_see_nothing_find_their_way(key):
    page = _page(key)
    assert page.all("html") == [{"lang": "en"}]
    assert any(meta.get("name") == "viewport" for meta in page.all("meta"))
    assert len(page.all("h1")) == len(page.all("main")) == 1
    levels = [int(tag[1]) for tag, _, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert all(below <= above + 1 for above, below in pairwise(levels))
    ids = [attributes["id"] for _, attributes, _ in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes, _ in page.elements:
        for name in ("aria-labelledby", "href"):
            target = attributes.get(name, "")
            assert target in ids or target.removeprefix("#") in ids or not target or target == "data:,"


@pytest.mark.parametrize("key", EVERY)
def test_tables_are_tables_and_pictures_have_names(key):
    page = _page(key)
    assert len(page.all("table")) == len(page.all("caption"))
    assert all(cell.get("scope") in {"row", "col"} for cell in page.all("th"))
    assert all(svg["role"] == "img" and svg["aria-labelledby"] for svg in page.all("svg"))
    for tag, attributes, parents in page.elements:
        if attributes.get("class") == "scroll" or tag == "pre":
            assert attributes["tabindex"] == "0"
        if tag == "table":
            assert parents[-1] == "div"


@pytest.mark.parametrize("key", PICTURED)
def test_the_page_says_all_that_the_terminal_says(key):
    result = pictured(key)
    text = " ".join(" ".join(_page(key).words).split())
    for sentence in [*result.assumptions, *result.excluded, *result.warnings]:
        assert " ".join(sentence.split()) in text
    for row in result.results:
        if row.memory:
            assert "On the wire" in text
    assert ("Time of one optimizer step" in text) == any(row.time for row in result.results)


def test_several_frameworks_have_a_plot_each():
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", render(pictured("compare-frameworks"), "html"))
    assert captions == [
        "Peak by kind of memory; GB per GPU",
        *(
            f"Peak over the data-parallel degree, {framework}; GB per GPU, both axes logarithmic"
            for framework in ("paper", "deepspeed", "pytorch")
        ),
    ]


@pytest.mark.parametrize("fmt", ["html", "svg"])
@pytest.mark.parametrize("key", PICTURED)
def test_the_same_answer_gives_the_same_file(key, fmt):
    assert render(pictured(key), fmt) == render(pictured(key), fmt)


def test_a_degree_without_a_second_point_is_drawn_too():
    job = zerocalc.job("7b", gpus=8, strategy="hsdp", shard_size=8)
    result = zerocalc.estimate(job)
    few = curves(job, result.results)
    one = [replace(curve, points=curve.points[:1]) for curve in few]
    assert "<circle" in render(replace(result, curves=one), "svg")


def _luminance(colour):
    channels = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one, other):
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _themes():
    blocks = re.findall(r":root, svg\.alone \{(.*?)\}", stylesheet(), re.DOTALL)[:2]
    return [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in blocks]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_every_text_colour_stands_out_from_its_ground(theme):
    colours = _themes()[theme]
    for ground in ("paper", "panel"):
        for name in ("ink", "faint", "good", "bad", "link"):
            assert _contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
    for index in range(7):
        assert _contrast(colours[f"series-{index}"], colours["paper"]) >= 4.5
    assert _contrast(colours["focus"], colours["paper"]) >= 3


def test_words_inside_bars_stand_out():
    fills = dict(re.findall(r"svg \.(\w+) \{ fill: (#[0-9a-f]{6}); \}", stylesheet()))
    for kind in ("params", "grads", "optimizer_states", "activations", "logits", "transients"):
        assert _contrast("#ffffff" if kind == "params" else "#000000", fills[kind]) >= 4.5
