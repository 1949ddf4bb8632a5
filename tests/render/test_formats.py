"""Formats for machines carry integers, formats for people carry the same document."""

import csv
import io
import json

import pytest

from zerocalc.errors import UnknownNameError, UsageError
from zerocalc.render import FORMATS, Look, format_for, formats_of, render
from zerocalc.results import plain

from .answers import KEYS, comparison, every_answer


@pytest.mark.parametrize("key", KEYS)
def test_every_kind_has_its_formats(key):
    answer = every_answer()[key]
    for fmt in formats_of(answer.kind):
        text = render(answer, fmt)
        assert text.endswith("\n"), fmt
        assert text == render(answer, fmt), fmt


def test_every_format_is_of_some_kind():
    kinds = {answer.kind for answer in every_answer().values()} | {"check"}
    assert {fmt for kind in kinds for fmt in formats_of(kind)} == set(FORMATS)


@pytest.mark.parametrize("key", KEYS)
def test_json_is_the_result_itself(key):
    data = json.loads(render(every_answer()[key], "json"), parse_constant=pytest.fail)
    assert data == plain(every_answer()[key])
    assert list(data)[:3] == ["schema_version", "kind", "tool"]


def test_jsonl_has_one_result_a_line():
    lines = render(comparison("bare"), "jsonl").splitlines()
    assert [json.loads(line) for line in lines] == plain(comparison("bare"))["results"]


@pytest.mark.parametrize("name", ["bare", "offload", "experts"])
def test_csv_has_one_row_per_strategy_and_term_with_whole_bytes(name):
    result = comparison(name)
    rows = list(csv.DictReader(io.StringIO(render(result, "csv"))))
    terms = [
        (row.strategy, tier, term.name, term.part, str(term.bytes))
        for row in result.results
        if row.memory
        for tier in ("gpu", "cpu", "nvme")
        for term in getattr(row.memory, tier).terms
    ]
    assert [(r["strategy"], r["tier"], r["term"], r["part"], r["bytes"]) for r in rows if r["term"]] == terms
    assert [r["strategy"] for r in rows if r["applicable"] == "false"] == [
        row.strategy for row in result.results if not row.applicable
    ]


def test_markdown_tables_are_rectangular_and_escaped():
    for key in KEYS:
        for line in render(every_answer()[key], "markdown").splitlines():
            if line.startswith("|"):
                assert line.endswith("|")
    assert "optimizer\\_states" not in render(comparison("bare"), "markdown", Look())
    assert "| **ZeRO-3** | 2.2 | 2.2 | 13.1 | 17.5 |" in render(comparison("bare"), "markdown")


def test_markdown_keeps_formulas_as_they_are():
    text = render(every_answer()["explain-model_states"], "markdown")
    assert "\n```text\nceil(bytes_per_param * ceil_div(num_params, shards))\n  = ceil(" in text
    assert "****" not in text


def test_an_unknown_format_names_the_choices():
    with pytest.raises(UnknownNameError, match="did you mean 'json'"):
        render(comparison("bare"), "jso")


def test_a_suffix_chooses_its_format():
    assert {suffix: format_for(suffix) for suffix in (".json", ".JSON", ".csv", ".md", ".jsonl", ".txt")} == {
        ".json": "json", ".JSON": "json", ".csv": "csv", ".md": "markdown", ".jsonl": "jsonl", ".txt": "table",
    }  # fmt: skip
    with pytest.raises(UsageError, match=r"no format is written to \.xyz"):
        format_for(".xyz")
