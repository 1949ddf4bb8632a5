"""What differs between two answers, and what is no answer."""

import json
from contextlib import suppress

import pytest

import zerocalc
from zerocalc.errors import FileError
from zerocalc.questions.diff import diff, read_snapshots, snapshots_in
from zerocalc.results import plain


def estimate(**words):
    return plain(
        zerocalc.estimate(zerocalc.job("70b", **({"dp": 64, "gpu": "80GB", "strategy": "zero3"} | words)))
    )


def compare(**words):
    return plain(zerocalc.compare(zerocalc.job("70b", **({"dp": 64, "gpu": "80GB"} | words))))


def between(base, new):
    return diff(snapshots_in(base, "base"), snapshots_in(new, "new"), names=("base", "new"))


def test_the_same_answer_has_no_difference():
    found = between(estimate(), estimate())
    assert (found.num_same, found.num_changed, found.changes[0].status) == (1, 0, "same")


def test_inputs_terms_and_figures_that_moved():
    found = between(estimate(), estimate(strategy="zero2")).changes[0]
    assert [(c.word, c.base, c.new) for c in found.inputs if c.word == "strategy"] == [
        ("strategy", "zero3", "zero2")
    ]
    moved = {term.name: term.change_bytes for term in found.terms}
    assert moved["params"] == 140_000_000_000 - 2_187_500_000
    assert next(iter(moved)) == "params", "the largest change first"
    metrics = {m.metric: (m.base, m.new, m.change) for m in found.metrics}
    assert metrics["memory.gpu.model_states_bytes"] == (17_500_000_000, 155_312_500_000, 137_812_500_000)
    assert metrics["fits"] == (True, False, None)
    assert metrics["communication.volume_params"] == (3.0, 2.0, -1.0)


def test_terms_come_and_go():
    found = between(estimate(), estimate(offload_optimizer="cpu")).changes[0]
    gone = [t for t in found.terms if t.new_bytes is None]
    came = [t for t in found.terms if t.base_bytes is None]
    assert ("gpu", "optimizer_states") in {(t.tier, t.name) for t in gone}
    assert ("cpu", "optimizer_states") in {(t.tier, t.name) for t in came}


def test_results_of_compare_are_matched_by_strategy():
    found = between(compare(), compare(gpu="40GB"))
    assert [change.name for change in found.changes] == ["ddp", "zero1", "zero2", "zero3"]
    assert {c.word for c in found.changes[0].inputs} == {"gpu", "capacity_bytes"}


def test_added_and_removed_configurations():
    found = between(compare(), estimate())
    assert (found.num_added, found.num_removed) == (1, 4)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ([], "not an answer of zerocalc"),
        ({}, "schema_version and kind are missing"),
        ({"schema_version": "0.1", "kind": "solve"}, "kind 'solve' cannot be compared"),
        ({"schema_version": "0.1", "kind": ["compare"]}, "cannot be compared"),
        ({"schema_version": "9.9", "kind": "compare"}, "schema version '9.9'"),
        ({"schema_version": {}, "kind": "compare"}, "schema version {}"),
        ({"schema_version": "0.1", "kind": "compare"}, "(request is missing)"),
        ({"schema_version": "0.1", "kind": "compare", "request": [], "results": []}, "as its schema has it"),
        (
            {"schema_version": "0.1", "kind": "compare", "request": {"a": 1}, "results": []},
            "as its schema has it",
        ),
        ({"schema_version": "0.1", "kind": "compare", "request": {}, "results": [1]}, "as its schema has it"),
        ({"schema_version": "0.1", "kind": "baseline", "budgets": [{"name": []}]}, "as its schema has it"),
        ({"schema_version": "0.1", "kind": "baseline", "budgets": 3}, "as its schema has it"),
    ],
)
def test_what_is_no_answer_is_one_line(data, says):
    with pytest.raises(FileError) as caught:
        snapshots_in(data, "x.json")
    assert caught.value.message.startswith("x.json: ")
    assert says in caught.value.message
    assert "\n" not in caught.value.message


def test_every_damage_to_an_answer_is_a_file_error_or_an_answer():
    """Take each value of a real answer away, or make it something else."""
    for path in _paths(estimate()):
        for wrong in (None, [], {}, "x", -1.5, True):
            data = estimate()
            _put(data, path, wrong)
            with suppress(FileError):
                between(estimate(), data)


def _paths(node, before=()):
    items = node.items() if isinstance(node, dict) else enumerate(node[:1]) if isinstance(node, list) else ()
    for key, value in items:
        yield (*before, key)
        yield from _paths(value, (*before, key))


def _put(data, path, value):
    for key in path[:-1]:
        data = data[key]
    data[path[-1]] = value


@pytest.mark.parametrize(
    "text", ["", "{", "NaN", '{"a": 1, "a": 2}', "[" * 5000, '{"a": ' + "9" * 5000 + "}"]
)
def test_files_that_are_no_json(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(FileError):
        read_snapshots(str(path))


def test_read_back_what_was_written(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(compare()))
    assert read_snapshots(str(path)) == snapshots_in(compare(), "x")
