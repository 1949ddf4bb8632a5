"""`--chart`, `-o report.html` and `-o chart.svg` from the command line, and the page in a real browser."""

import json
from xml.etree import ElementTree

import pytest

from tests.browser import Browser
from tests.render.pages import Page, allowed, tokens

from .running import call

TIMED = (
    "compare", "llama-3-8b", "-n", "16", "--node", "dgx-h100", "--micro-batch", "1", "--seq-len", "8192",
    "--checkpointing", "full",
)  # fmt: skip
BARE = ("compare", "70b", "--dp", "64", "--gpu", "80GB")
ONE = ("estimate", "7b", "-n", "8", "--strategy", "zero2", "--offload-optimizer", "cpu", "--node", "dgx-h100")
QUESTIONS = {"timed": TIMED, "bare": BARE, "one": ONE}
TAB, ENTER = ("Tab", 9), ("Enter", 13)


def _written(folder, name, question):
    done = call(*question, "-o", folder / name)
    assert (done.code, done.out, done.err) == (0, "", "")
    return (folder / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_suffix_makes_a_page_whose_json_is_the_answer(tmp_path, name):
    page = Page(_written(tmp_path, "report.html", QUESTIONS[name]))
    plain = json.loads(call(*QUESTIONS[name], "--chart", "-f", "json").out)
    assert page.answer == plain
    assert len(plain["curves"]) == sum(row["applicable"] for row in plain["results"])
    assert "curves" in json.loads(call(*QUESTIONS[name], "-f", "json").out)


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_suffix_makes_a_picture_that_stands_alone(tmp_path, name):
    text = _written(tmp_path, "chart.svg", QUESTIONS[name])
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "href" not in text
    assert "prefers-color-scheme: dark" in text
    assert _written(tmp_path, "chart.svg", QUESTIONS[name]) == text


def test_other_answers_are_pages_too_but_no_pictures(tmp_path):
    assert "<table>" in _written(tmp_path, "solve.html", ("solve", "gpus", "70b", "--gpu", "80GB"))
    done = call("solve", "gpus", "70b", "--gpu", "80GB", "-o", tmp_path / "solve.svg")
    assert done.code == 2
    assert "svg" in done.err
    assert not (tmp_path / "solve.svg").exists()


def test_charts_where_there_is_a_place_for_them():
    assert "Peak over N_d" in call(*BARE, "--chart").out
    assert "```text" in call(*BARE, "--chart", "-f", "markdown").out
    for fmt in ("csv", "jsonl"):
        done = call(*BARE, "--chart", "-f", fmt)
        assert (done.code, done.out) == (2, "")
        assert f"--chart: {fmt} has no place for a picture" in done.err


def test_without_charts_no_curve_is_computed():
    assert json.loads(call(*BARE, "-f", "json").out)["curves"] == []


def test_the_next_command_asks_the_same_question_without_the_picture():
    assert "--chart" not in call(*BARE, "--chart").out.splitlines()[-1]


@pytest.fixture(scope="module")
def browser():
    with Browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    for name, question in QUESTIONS.items():
        _written(folder, f"{name}.html", question)
    return folder


VIEWS = [(width, dark) for width in (390, 768, 1280) for dark in (False, True)]


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), VIEWS)
@pytest.mark.parametrize("name", QUESTIONS)
def test_the_page_fits_its_window(browser, pages, name, width, dark):
    browser.open(pages / f"{name}.html", width=width, dark=dark)
    assert browser.run("document.documentElement.scrollWidth") <= width
    shown = browser.run(
        "[...document.querySelectorAll('figure svg')].filter(s => s.getBoundingClientRect().width > 0)"
        ".map(s => [s.getAttribute('class'), s.getBoundingClientRect().right])"
    )
    assert {kind for kind, _ in shown} == {"wide" if width > 800 else "narrow"}
    assert all(right <= width for _, right in shown)
    sizes = browser.run(
        "[...document.querySelectorAll('main *')].filter(e => e.textContent.trim() && e.getClientRects().length)"
        ".map(e => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert min(sizes) >= 12
    ground = browser.run("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)")


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", QUESTIONS)
def test_words_in_pictures_neither_leave_them_nor_cover_each_other(browser, pages, name, width):
    browser.open(pages / f"{name}.html", width=width)
    boxes = browser.run(
        "[...document.querySelectorAll('figure svg')].filter(s => s.getBoundingClientRect().width > 0).map(s => ["
        "s.getBoundingClientRect().right + 1, [...s.querySelectorAll('text')].map(t => "
        "[t.textContent, ...['left', 'right', 'top', 'bottom'].map(k => t.getBoundingClientRect()[k])])])"
    )
    assert boxes
    for edge, words in boxes:
        for index, (text, left, right, top, bottom) in enumerate(words):
            assert right <= edge, text
            for other, left2, right2, top2, bottom2 in words[index + 1 :]:
                across = min(right, right2) - max(left, left2)
                down = min(bottom, bottom2) - max(top, top2)
                assert across <= 1 or down <= 4, (text, other)


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", QUESTIONS)
def test_no_line_crosses_a_number(browser, pages, name, width):
    browser.open(pages / f"{name}.html", width=width)
    lines, words = (
        browser.run(
            f"[...document.querySelectorAll({selector!r})].filter(e => e.getClientRects().length)"
            ".map(e => ['left', 'right', 'top', 'bottom'].map(k => e.getBoundingClientRect()[k]))"
        )
        for selector in ("figure line.capacity", "figure text[class^=on-]")
    )
    assert lines
    assert words
    for left, right, top, bottom in words:
        for left2, right2, top2, bottom2 in lines:
            assert right2 <= left or right <= left2 or bottom2 <= top or bottom <= top2


@pytest.mark.slow
@pytest.mark.parametrize("name", QUESTIONS)
def test_the_page_asks_for_nothing_and_breaks_no_rule_of_its_own(browser, pages, name):
    browser.open(pages / f"{name}.html", width=1280)
    requested = {
        event["request"]["url"].split(":")[0] for event in browser.happened("Network.requestWillBeSent")
    }
    assert requested <= {"file", "data"}
    assert browser.happened("Log.entryAdded") == []
    assert browser.happened("Runtime.exceptionThrown") == []
    assert browser.run("performance.getEntriesByType('resource').length") == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", QUESTIONS)
def test_what_the_browser_shows_is_in_the_json_that_the_browser_reads(browser, pages, name):
    browser.open(pages / f"{name}.html", width=1280)
    browser.run("document.querySelectorAll('details').forEach(d => { d.open = true })")
    answer = json.loads(
        browser.run("JSON.stringify(JSON.parse(document.getElementById('json').textContent))")
    )
    known = allowed(answer) | tokens(" ".join(QUESTIONS[name])) | tokens(answer["tool"]["version"])
    cells = browser.run("[...document.querySelectorAll('td, th, li, dd, h1, pre')].map(e => e.innerText)")
    assert len(cells) > 50
    for words in cells:
        assert tokens(words) <= known, words


@pytest.mark.slow
def test_everything_is_reached_and_opened_by_keyboard(browser, pages):
    browser.open(pages / "timed.html", width=390)
    focused = "(e => e.tagName + '.' + (e.className || '') + ' ' + getComputedStyle(e).outlineStyle)(document.activeElement)"
    browser.press(*TAB)
    assert browser.run(focused) == "A.skip solid"
    assert browser.run("document.activeElement.getBoundingClientRect().left") >= 0
    browser.press(*ENTER)
    assert browser.run("location.hash") == "#main"
    stops = set()
    for _ in range(60):
        browser.press(*TAB)
        stop = browser.run(focused)
        if stop.startswith("SUMMARY"):
            browser.press(*ENTER)
        if stop.startswith("BODY"):
            break
        stops.add(stop)
    assert stops == {"DIV.scroll solid", "PRE. solid", "SUMMARY. solid"}
    assert browser.run("[...document.querySelectorAll('details')].every(d => d.open)")


@pytest.mark.slow
def test_a_wide_table_scrolls_in_its_own_frame_with_its_first_column_in_place(browser, pages):
    browser.open(pages / "timed.html", width=390)
    browser.run("document.querySelector('.scroll').focus()")
    before = browser.run("document.querySelector('.scroll tbody th').getBoundingClientRect().left")
    browser.run("document.querySelector('.scroll').scrollLeft = 150")
    assert browser.run("document.querySelector('.scroll').scrollLeft") > 50
    assert browser.run("document.querySelector('.scroll tbody th').getBoundingClientRect().left") == before


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
def test_the_picture_alone_follows_the_theme(browser, tmp_path, dark):
    _written(tmp_path, "chart.svg", BARE)
    browser.open(tmp_path / "chart.svg", width=800, dark=dark)
    fill = browser.run("getComputedStyle(document.querySelector('.paper')).fill")
    assert fill == ("rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)")
