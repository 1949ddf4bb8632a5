"""Sweeps from the command line: formats, files, Ctrl-C, what stands where."""

import csv
import io
import json
import os
import signal
import subprocess
import sys

import pytest

from .running import call

GRID = ("sweep", "70b", "--gpu", "80GB", "--over", "gpus=8..64:*2", "--over", "strategy=zero2,zero3")


def test_jsonl_is_one_object_a_row():
    done = call(*GRID, "-f", "jsonl")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert (done.code, len(rows)) == (0, 8)
    assert rows[-1]["model_states_bytes"] == 17_500_000_000
    assert list(rows[0])[:3] == ["gpus", "strategy", "framework"]
    assert done.err.startswith("8 rows of 8 configurations")


def test_csv_has_the_columns_once_and_whole_numbers():
    done = call(*GRID, "--where", "fits", "-f", "csv", "-q")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert [(row["gpus"], row["strategy"], row["fits"]) for row in rows] == [
        ("16", "zero3", "true"), ("32", "zero3", "true"), ("64", "zero3", "true"),
    ]  # fmt: skip
    assert rows[0]["step_s_lower"] == ""
    assert done.err == ""


def test_json_is_one_object_that_its_schema_describes():
    import jsonschema

    from zerocalc.schemas import schema_text

    for extra in ((), ("--where", "peak < 1"), ("--over", "tp=1,3")):
        data = json.loads(call(*GRID, *extra, "-f", "json").out)
        jsonschema.validate(data, json.loads(schema_text("sweep")))
        assert data["num_rows"] == len(data["rows"])


def test_the_table_shows_what_is_known():
    done = call(*GRID, "--sort", "peak:desc", "--top", "2")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[1].split() == [
        "gpus",
        "strategy",
        "States",
        "Peak",
        "Peak",
        "in",
        "Left",
        "Fits",
        "Sent",
        "Wire",
    ]
    assert lines[3].split()[:3] == ["8", "zero2", "262.5"]
    assert "2 of 8 configurations are shown" in done.out


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_digit_is_lost_at_any_width(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    done = call(*GRID, "-q")
    assert done.out.count("262.5") >= 1
    assert all(len(line) <= width for line in done.out.splitlines() if not line.startswith(" "))


def test_a_file_appears_whole(tmp_path):
    target = tmp_path / "rows.csv"
    assert call(*GRID, "-o", str(target)).code == 0
    assert len(target.read_text().splitlines()) == 9
    assert call(*GRID, "--over", "precision=nonsense", "-o", str(tmp_path / "other.csv")).code == 2
    assert sorted(os.listdir(tmp_path)) == ["rows.csv"]


def test_several_strategies_are_an_axis():
    done = call("sweep", "70b", "--over", "dp=8", "--strategy", "zero1,zero2", "-f", "jsonl", "-q")
    assert [json.loads(line)["strategy"] for line in done.out.splitlines()] == ["zero1", "zero2"]


def test_files_and_settings_take_part(tmp_path):
    job = tmp_path / "job.json"
    job.write_text(
        json.dumps({"model": "70b", "gpus": 64, "gpu": "80GB", "strategy": "zeropp", "gpus_per_node": 8})
    )
    done = call("sweep", "--job", str(job), "--over", "set.hpz=1,8", "-f", "jsonl", "-q")
    states = [json.loads(line)["model_states_bytes"] for line in done.out.splitlines()]
    assert states[1] - states[0] == 2 * 70 * 10**9 // 8


def test_exit_codes():
    assert call(*GRID, "--require-fit", "-q").code == 0
    assert call("sweep", "70b", "--gpu", "80GB", "--over", "gpus=1..4", "--require-fit", "-q").code == 1
    for bad in (
        ("--over", "gpsu=1"),
        ("--where", "fits and"),
        ("--where", "__import__('os')"),
        ("-f", "svg"),
    ):
        done = call(*GRID, *bad)
        assert (done.code, done.out) == (2, "")
    assert call("sweep", "70b").code == 2


@pytest.mark.parametrize("fmt", ["json", "jsonl", "csv"])
def test_where_nothing_can_be_stdout_stays_empty(fmt):
    done = call("sweep", "--strategy", "zero9", "--over", "gpus=8,16", "-f", fmt)
    assert (done.code, done.out) == (2, "")


def test_ctrl_c_leaves_whole_rows():
    command = [sys.executable, "-m", "zerocalc", "sweep", "70b", "-f", "jsonl", "--over", "gpus=1..10000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(timeout=60) == 130
    assert rest.endswith("\n")
    assert all(json.loads(line)["strategy"] == "zero3" for line in [first, *rest.splitlines()[-3:]])


def test_a_closed_pipe_is_silent():
    command = f"{sys.executable} -m zerocalc sweep 70b -f csv --over gpus=1..1000000 | head -n 2"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert len(done.stdout.splitlines()) == 2
    assert "Traceback" not in done.stderr
    assert "error" not in done.stderr


def test_numpy_is_loaded_by_sweeps_alone():
    script = "import sys; from zerocalc.cli import run; run({arguments}); print('numpy' in sys.modules, file=sys.stderr)"
    for arguments, loaded in (
        (["compare", "7b", "-n", "8", "-f", "json"], "False"),
        ([*GRID, "-f", "jsonl"], "True"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", script.format(arguments=arguments)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr.splitlines()[-1] == loaded
