"""`--emit` at the command line: the fragment alone on stdout, the rest on stderr, files whole or not at all."""

import json
import tomllib

import pytest

from tests.cli.running import call
from zerocalc.cli.options import EMITTED
from zerocalc.writers import TOOLS


@pytest.fixture(autouse=True)
def own_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("ZEROCALC_FORMAT", raising=False)
    monkeypatch.chdir(tmp_path)


def test_estimate_prints_only_the_fragment():
    done = call(
        "estimate",
        "llama-3-8b",
        "-n",
        "8",
        "--strategy",
        "zero2",
        "--micro-batch",
        "1",
        "--seq-len",
        "2048",
        "--emit",
        "deepspeed",
    )
    assert done.code == 0
    assert json.loads(done.out)["zero_optimization"]["stage"] == 2
    assert "--gpus 8 --seq-len 2048" in done.err


def test_the_file_with_what_is_left_to_say_is_the_same_answer():
    words = [
        "-n",
        "8",
        "--micro-batch",
        "1",
        "--seq-len",
        "2048",
        "--framework",
        "deepspeed",
        "--gpu",
        "h100",
        "-f",
        "json",
    ]
    asked = ["estimate", "llama-3-8b", "--strategy", "zero2", *words]
    assert call(*asked[:-2], "--emit", "deepspeed", "-o", "ds.json").code == 0
    again = call("estimate", "llama-3-8b", "--deepspeed", "ds.json", *words)
    assert json.loads(again.out)["results"] == json.loads(call(*asked).out)["results"]


def test_a_file_is_written_in_place_of_stdout(tmp_path):
    done = call("estimate", "7b", "-n", "8", "--emit", "torchtitan", "-o", "train.toml", "-q")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert (
        tomllib.loads((tmp_path / "train.toml").read_text())["parallelism"]["data_parallel_shard_degree"] == 8
    )


def test_a_refusal_leaves_stdout_empty_and_no_file(tmp_path):
    done = call("estimate", "7b", "-n", "8", "--strategy", "zero1", "--emit", "fsdp2", "-o", "shard.py")
    assert (done.code, done.out) == (2, "")
    assert "hint: --emit deepspeed" in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_format_beside_it_is_refused():
    done = call("estimate", "7b", "-n", "8", "--emit", "accelerate", "-f", "json")
    assert (done.code, done.out) == (2, "")
    assert json.loads(done.err)["error"]["message"].startswith("--emit prints")


def test_a_configuration_that_must_fit_and_does_not():
    done = call("estimate", "70b", "-n", "8", "--gpu", "80GB", "--require-fit", "--emit", "accelerate")
    assert done.code == 1
    assert "distributed_type: FSDP" in done.out


@pytest.mark.parametrize(
    ("quantity", "words", "text"),
    [
        ("gpus", ["70b", "--strategy", "zero3"], "num_processes: 14"),
        ("strategy", ["7b", "-n", "64"], "distributed_type: DEEPSPEED"),
        ("params", ["-n", "8", "--strategy", "zero3"], "# 40,000,000,000"),
    ],
)
def test_solve_writes_the_job_with_the_unknown_filled_in(quantity, words, text):
    done = call("solve", quantity, *words, "--gpu", "80GB", "--emit", "accelerate")
    assert done.code == 0
    assert text.replace(",", "") in done.out


def test_solve_with_the_micro_batch_in_the_file():
    words = ["llama-3-8b", "-n", "8", "--seq-len", "1024", "--gpu", "h100", "--strategy", "zero3"]
    value = json.loads(call("solve", "micro-batch", *words, "-f", "json").out)["answers"][0]["value"]
    done = call("solve", "micro-batch", *words, "--emit", "deepspeed")
    assert json.loads(done.out)["train_micro_batch_size_per_gpu"] == value


def test_solve_needs_one_answer():
    done = call("solve", "gpus", "7b", "--gpu", "80GB", "--emit", "accelerate")
    assert (done.code, done.out) == (2, "")
    assert "hint: give --strategy: zero1, zero2, zero3" in done.err
    none = call("solve", "gpus", "70b", "--gpu", "80GB", "--strategy", "ddp", "--emit", "accelerate")
    assert (none.code, none.out) == (1, "")
    assert none.err.startswith("ddp: no number of GPUs helps")


def test_completion_and_tools_are_the_same_names():
    assert EMITTED(None, None, "") == list(TOOLS)
