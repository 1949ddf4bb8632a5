"""No digit is lost at any width, nothing is wrapped inside a number, and the colours say nothing the words do not."""

import re

import pytest

import zerocalc
from zerocalc.questions.presets import preset, presets
from zerocalc.render import Look, document_of, render
from zerocalc.render.document import Column, Facts, Heading, Table, Verbatim, ascii_text, cells
from zerocalc.render.fold import folds

from .answers import KEYS, comparison, every_answer, job

WIDTHS = (40, 60, 80, 120, 160, None)
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def _numbers(text):
    return re.findall(r"[0-9][0-9.,]*", text)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("key", KEYS)
def test_every_cell_is_whole_at_every_width(key, width):
    look = Look(width=width)
    text = render(every_answer()[key], "table", look)
    for block in document_of(every_answer()[key], look).blocks:
        if isinstance(block, Table):
            words = " ".join(text.split())
            for cell in (cell for row in block.rows for cell in row):
                assert cell.text in text or " ".join(cell.text.split()) in words
    assert "…" not in text


@pytest.mark.parametrize("width", [40, 60, 80, 120, 160])
@pytest.mark.parametrize("key", KEYS)
def test_nothing_but_commands_and_long_words_is_wider_than_the_terminal(key, width):
    for line in render(every_answer()[key], "table", Look(width=width)).split("\n"):
        longest = max(map(len, line.split()), default=0)
        assert len(line) <= width or line.startswith("Next: ") or longest > width // 2, line


@pytest.mark.parametrize("key", [key for key in KEYS if key.startswith("explain")])
def test_a_formula_is_broken_before_operators_and_keeps_every_digit(key):
    wide = render(every_answer()[key], "table", Look())
    narrow = render(every_answer()[key], "table", Look(width=40))
    assert "".join(narrow.split()) == "".join(wide.split())
    assert not any(line.endswith((" *", " +", " /", " -", " //")) for line in narrow.split("\n"))


@pytest.mark.parametrize("key", KEYS)
def test_ascii_output_is_ascii_and_has_the_same_numbers(key):
    plain = render(every_answer()[key], "table", Look())
    text = render(every_answer()[key], "table", Look(ascii=True))
    assert text.isascii()
    assert _numbers(ascii_text(plain.replace("─", "-"))) == _numbers(text)


@pytest.mark.parametrize("width", [40, 80, None])
@pytest.mark.parametrize("key", KEYS)
def test_colour_changes_nothing_but_colour(key, width):
    plain = render(every_answer()[key], "table", Look(width=width))
    coloured = render(every_answer()[key], "table", Look(width=width, color=True))
    assert "\x1b[" not in plain
    assert "\x1b[" in coloured
    unpainted = "\n".join(line.rstrip() for line in ANSI.sub("", coloured).split("\n"))
    assert unpainted == plain


def test_the_environment_has_no_say(monkeypatch):
    before = render(comparison("bare"), "table", Look(width=80))
    for name, value in {"COLUMNS": "30", "TERM": "dumb", "NO_COLOR": "1", "FORCE_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    assert render(comparison("bare"), "table", Look(width=80)) == before


def test_the_main_table_reads_as_the_papers_print_it():
    text = render(comparison("bare"), "table", Look(quiet=True))
    rows = {line.split()[0]: line.split() for line in text.split("\n")[3:] if line}
    assert text.split("\n")[1].split() == [
        "Strategy",
        "Params",
        "Grads",
        "Optimizer",
        "Total",
        "Floor",
        "Wire",
        "Fits",
    ]
    assert {name: (row[4], row[6], row[7], row[8]) for name, row in rows.items()} == {
        "DDP": ("1120.0", "2Ψ", "no", "−1040.0"),
        "ZeRO-1": ("293.1", "2Ψ", "no", "−213.1"),
        "ZeRO-2": ("155.3", "2Ψ", "no", "−75.3"),
        "ZeRO-3": ("17.5", "3Ψ", "yes", "+62.5"),
    }


def test_numbers_align_right():
    lines = render(comparison("bare"), "table", Look(quiet=True)).split("\n")[1:]
    assert len({len(line) for line in lines if line}) == 1


def test_a_narrow_terminal_turns_the_table_then_folds_it_then_takes_it_row_by_row():
    assert "Strategy          DDP" in render(comparison("bare"), "table", Look(width=60))
    assert "\nStrategy  Floor Wire       Fits\n" in render(comparison("bare"), "table", Look(width=40))
    assert "\nDDP\n  Params     140.0\n" in render(comparison("bare"), "table", Look(width=18))


def test_many_rows_are_folded_by_columns_with_their_names_repeated():
    frameworks = ["paper", "deepspeed", "pytorch"]
    text = render(zerocalc.compare(job("no_gpu"), frameworks=frameworks), "table", Look(width=60, quiet=True))
    heads = [line.split() for line in text.split("\n") if line.startswith("Strategy")]
    assert len(heads) > 1
    assert all(head[:2] == ["Strategy", "Framework"] for head in heads)
    assert [name for head in heads for name in head[2:]][:3] == ["Params", "Grads", "Optimizer"]
    assert sum(line.startswith("ZeRO-1") for line in text.split("\n")) == 3 * len(heads)


def test_the_sources_of_a_preset_are_numbered_below_its_figures():
    text = render(every_answer()["preset"], "table", Look(width=80))
    figures, _, sources = text.partition("\nSources\n")
    assert "http" not in figures
    assert all(f"  {mark}  " in sources for mark in re.findall(r"\[\d+\]", figures))


def test_a_list_without_a_kind_counts_the_kinds():
    text = render(presets(), "table", Look())
    assert len(text.split("\n")) < 20
    assert re.search(r"^gpus +\d+$", text, re.MULTILINE)
    assert "Next: zerocalc presets list" in text


def test_quiet_keeps_only_tables():
    kept = document_of(comparison("bare"), Look(quiet=True)).blocks
    assert kept
    assert all(isinstance(block, (Table, Facts)) for block in kept)
    explained = document_of(every_answer()["explain-sent"], Look(quiet=True)).blocks
    assert {Heading, Verbatim, Facts} == {type(block) for block in explained}


def test_gibibytes_are_named_in_the_title():
    text = render(comparison("bare"), "table", Look(units="GiB"))
    assert "GiB per GPU" in text.split("\n")[0]
    assert "1043.1" in text
    assert "GB per" not in text


def _folded(width, *, names=0, last="5", right=True):
    columns = (
        Column("Name", right=False),
        *(Column(f"Column{at}") for at in range(4)),
        Column("Last", right=right),
    )
    rows = tuple(cells([f"row{at}", "1", "22", "333", "4444", last]) for at in range(9))
    return folds(Table("t", columns, rows, names=names), [4, 7, 7, 7, 7, max(4, len(last))], width)


def test_folding_repeats_the_columns_that_name_a_row():
    heads = [[column.header for column in part.columns] for part in _folded(24)]
    assert heads == [["Name", "Column0", "Column1"], ["Name", "Column2", "Column3"], ["Name", "Last"]]
    heads = [[column.header for column in part.columns] for part in _folded(30, names=2)]
    assert all(head[:2] == ["Name", "Column0"] for head in heads)
    assert _folded(12) == []  # One column a part would be no shorter than blocks.


def test_folding_breaks_the_last_sentence_between_words():
    (part,) = _folded(70, last="a sentence that is longer than what is left of the line", right=False)
    assert {len(line) <= 70 - 36 for row in part.rows for line in row[-1].text.split("\n")} == {True}
    assert (
        " ".join(part.rows[0][-1].text.split("\n"))
        == "a sentence that is longer than what is left of the line"
    )


def test_a_number_stays_with_its_unit():
    for width in range(40, 80):
        text = render(comparison("real"), "table", Look(width=width))
        assert not re.search(r"\d\n\s*(GB|GiB|MiB|parameters)\b", text)


def test_what_is_published_in_words_stands_beside_the_figures():
    text = render(preset("nodes", "dgx-h100"), "table", Look(width=80))
    assert re.search(r"^  intra link +NVLink 4 \+ NVSwitch 3 \[1\]$", text, re.MULTILINE)
    assert "(medium confidence) [3]" in text
    assert max(len(line) for line in text.split("\nSources")[0].split("\n")) <= 80
