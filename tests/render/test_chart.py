"""Charts in a terminal: told apart without colour and in ASCII, whole at every width, true to the numbers."""

import re

import pytest

import zerocalc
from zerocalc.render import Look, render
from zerocalc.render.chart import USUAL_WIDTH, charts, mark_of
from zerocalc.render.document import Chart
from zerocalc.render.figures import KINDS, axis_end, bars_of, room_of, scale_of, ticks

from .pictured import PICTURED, pictured

ANSI = re.compile(r"\x1b\[[0-9;]*m")
SYMBOLS = {kind.symbol for kind in KINDS.values()}
LETTERS = {kind.letter for kind in KINDS.values()}


def _charts(key, **look):
    return [block for block in charts(pictured(key), Look(**look)) if isinstance(block, Chart)]


def _lines(chart):
    return ["".join(cell.text for cell in line) for line in chart.lines]


@pytest.mark.parametrize("key", PICTURED)
def test_a_bars_segments_sum_to_its_bytes(key):
    for bar in bars_of(pictured(key)):
        assert sum(segment.bytes for segment in bar.segments) == bar.bytes
        assert bar.bytes in bar.row.memory.gpu.phases.values()


@pytest.mark.parametrize("key", [key for key in PICTURED if key.startswith("compare")])
def test_a_comparison_has_a_bar_per_strategy_at_its_peak(key):
    rows = [row for row in pictured(key).results if row.memory]
    assert [bar.bytes for bar in bars_of(pictured(key))] == [row.memory.gpu.peak_bytes for row in rows]
    assert [bar.fits for bar in bars_of(pictured(key))] == [row.fits for row in rows]


def test_an_estimate_has_a_bar_per_phase():
    gpu = pictured("estimate-timed").results[0].memory.gpu
    assert [bar.bytes for bar in bars_of(pictured("estimate-timed"))] == list(gpu.phases.values())


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("key", PICTURED)
def test_no_line_is_wider_than_the_terminal(key, width, ascii_only):
    for chart in _charts(key, width=width, ascii=ascii_only):
        for line in _lines(chart):
            assert len(line.rstrip()) <= width
            assert not ascii_only or line.isascii()


@pytest.mark.parametrize("key", PICTURED)
def test_colour_changes_nothing_but_colour(key):
    plain = render(pictured(key), "table", Look(width=80, chart=True))
    coloured = render(pictured(key), "table", Look(width=80, chart=True, color=True))
    assert "\n".join(line.rstrip() for line in ANSI.sub("", coloured).split("\n")) == plain
    assert "\x1b[34m█" in coloured


@pytest.mark.parametrize("key", PICTURED)
@pytest.mark.parametrize("ascii_only", [False, True])
def test_every_kind_has_its_own_symbol_in_its_bar_and_in_the_key(key, ascii_only):
    lines = _lines(_charts(key, ascii=ascii_only, width=120)[0])
    bars = bars_of(pictured(key))
    end = axis_end(pictured(key), bars)
    known = LETTERS if ascii_only else SYMBOLS
    for bar, line in zip(bars, lines, strict=False):
        drawn = line[max(len(each.label) for each in bars) + 1 :]
        shown = [segment.kind for segment in bar.segments if segment.bytes * 60 > end]
        expected = [kind.letter if ascii_only else kind.symbol for kind in shown]
        first = {symbol: drawn.find(symbol) for symbol in expected}
        if bar.bytes <= end:
            assert all(place >= 0 for place in first.values())
        assert set(drawn.split("  ")[0]) - known <= set(" |│»>")


def test_a_bar_is_as_long_as_its_bytes_and_the_line_stands_at_the_room():
    result = pictured("compare-timed")
    chart = _charts("compare-timed", width=100)[0]
    bars, lines = bars_of(result), _lines(chart)
    end, room = axis_end(result, bars), room_of(result.results[0])
    space = 100 - len("ZeRO-1") - len("128.5 yes") - 3
    for bar, line in zip(bars, lines, strict=False):
        drawn = line[len("ZeRO-1 ") : len("ZeRO-1 ") + space]
        assert abs(drawn.index("│") - room / end * space) <= 1
        filled = sum(character != " " for character in drawn) - (bar.bytes < room)
        assert abs(filled - bar.bytes / end * space) <= 1
        assert line.rstrip().endswith("yes" if bar.fits else "no")


def test_bars_far_over_the_capacity_are_cut_and_say_so():
    chart = _charts("compare-bare", width=80)[0]
    assert chart.title == "Peak by kind of memory; GB per GPU; bars ending in » go on"
    lines = _lines(chart)
    assert "»" in lines[0]
    assert "1120.0 no" in lines[0]
    assert "»" not in lines[3]
    assert "» go on" not in _charts("compare-no_gpu")[0].title


@pytest.mark.parametrize("key", PICTURED)
def test_a_plot_has_a_mark_for_every_point_in_the_row_of_its_bytes(key):
    result = pictured(key)
    plots = _charts(key)[1:]
    frameworks = list(dict.fromkeys(curve.framework for curve in result.curves))
    assert len(plots) == len(frameworks)
    for plot, framework in zip(plots, frameworks, strict=True):
        marks = "".join(line.split("│", 1)[-1] for line in _lines(plot)[:-1])
        for curve in (curve for curve in result.curves if curve.framework == framework):
            assert mark_of(curve) in marks or "*" in marks
        degrees = {str(point.data_parallel_size) for curve in result.curves for point in curve.points}
        shown = _lines(plot)[-1].split()
        assert set(shown) - {"∞"} <= degrees


def test_the_legend_says_where_each_curve_starts_is_and_ends():
    text = render(pictured("compare-bare"), "table", Look(chart=True, quiet=True))
    assert "D DDP     1120.0 at N_d 1, 1120.0 at 64; 1120.0 stays" in text
    assert "2 ZeRO-2  1120.0 at N_d 1, 155.3 at 64; 140.0 stays" in text
    assert "3 ZeRO-3  1120.0 at N_d 1, 17.5 at 64; 0.0 stays" in text


def test_charts_stand_after_the_first_table_and_only_when_asked_for():
    text = render(pictured("compare-bare"), "table", Look(chart=True))
    assert (
        text.index("Fits")
        < text.index("Peak by kind of memory")
        < text.index("Peak over N_d")
        < text.index("kept whole")
    )
    assert "Peak over N_d" not in render(pictured("compare-bare"), "table", Look())


def test_markdown_shows_charts_as_they_are():
    text = render(pictured("compare-bare"), "markdown", Look(chart=True))
    assert text.count("```text\n") == 2
    assert max(len(line) for part in text.split("```")[1::2] for line in part.splitlines()) <= USUAL_WIDTH


@pytest.mark.parametrize("end", [0.003, 1, 7.4, 128.5, 240, 99999])
@pytest.mark.parametrize("most", [4, 7])
def test_ticks_are_round_and_few(end, most):
    marks = ticks(end, most=most)
    assert 2 <= len(marks) <= most + 1
    assert marks[0] == 0
    assert marks[-1] <= end


@pytest.mark.parametrize("key", PICTURED)
def test_a_logarithmic_axis_holds_every_point_and_the_capacity(key):
    result = pictured(key)
    room = room_of(result.results[-1])
    scale = scale_of(result.curves, room, 10**9)
    for curve in result.curves:
        for point in curve.points:
            assert 0 <= scale.at(point.peak_bytes) <= 1
    assert len(scale.ticks()) >= 2
    assert all(0 <= at <= 1 for _, at in scale.ticks())


def test_a_rank_with_nothing_on_its_gpu_has_an_empty_bar():
    job = zerocalc.job("1", gpus=12, pp=3, framework="pytorch", offload_optimizer="cpu")
    bars = bars_of(zerocalc.compare(job))
    assert any(bar.bytes == 0 and not bar.segments for bar in bars)
