"""Plans from the command line."""

import json

import jsonschema
import pytest

from zerocalc.schemas import schema_text

from .running import call

ASKED = ("plan", "llama-3-8b", "--node", "dgx-h100", "-n", "16", "--seq-len", "8192")


def test_json_is_what_its_schema_says_and_its_command_answers():
    data = json.loads(call(*ASKED, "-f", "json").out)
    jsonschema.validate(data, json.loads(schema_text("plan")))
    best = data["plans"][0]
    again = json.loads(call("estimate", *ASKED[1:], *best["command"].split(), "-f", "json").out)
    (result,) = again["results"]
    assert result["memory"]["gpu"]["peak_bytes"] == best["peak_bytes"]
    assert result["time"]["step_s"]["upper"] == pytest.approx(best["step_s_upper"], rel=1e-12)


def test_the_table_lists_them_in_order_and_says_why():
    done = call(*ASKED, "--top", "3")
    assert (done.code, done.err) == (0, "")
    assert "candidates at a global batch of" in done.out
    assert "1 before 2:" in done.out
    assert "Next: zerocalc estimate llama-3-8b" in done.out


def test_no_fit_is_exit_1_with_advice():
    done = call(
        "plan",
        "llama-3-70b",
        "--gpu",
        "h100",
        "-n",
        "4",
        "--offload-optimizer",
        "none",
        "--offload-params",
        "none",
    )
    assert done.code == 1
    assert "Nothing fits" in done.out
    assert "It would fit with" in done.out


def test_emit_writes_the_winner():
    done = call(*ASKED, "--strategy", "zero2,zero3", "--emit", "deepspeed")
    assert done.code == 0
    assert json.loads(done.out)["zero_optimization"]["stage"] in {2, 3}


@pytest.mark.parametrize("fmt", ["jsonl", "csv", "markdown"])
def test_other_formats(fmt):
    done = call(*ASKED, "-f", fmt, "--top", "2")
    assert done.code == 0
    assert "zero3" in done.out or "ZeRO-3" in done.out


@pytest.mark.parametrize(
    "bad",
    [
        ("--over", "gpus=8,16"),
        ("--over", "tpp=1"),
        ("--global-batch", "0"),
        ("--global-batch", "many"),
        ("--top", "0"),
    ],
)
def test_bad_words_are_usage(bad):
    done = call(*ASKED, *bad)
    assert (done.code, done.out) == (2, "")
