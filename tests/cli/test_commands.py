"""The questions, end to end."""

import json
import re
import shlex
from importlib import import_module

import pytest

from zerocalc.cli import COMMANDS

from .running import MAIN, call


def _totals(text):
    return {
        row["strategy"]: row["memory"]["gpu"]["model_states_bytes"] for row in json.loads(text)["results"]
    }


def test_the_main_job_as_integers():
    done = call(*MAIN, "-f", "json")
    assert (done.code, done.err) == (0, "")
    assert _totals(done.out) == {
        "ddp": 1_120_000_000_000, "zero1": 293_125_000_000, "zero2": 155_312_500_000, "zero3": 17_500_000_000,
    }  # fmt: skip
    assert [row["fits"] for row in json.loads(done.out)["results"]] == [False, False, False, True]


def test_the_real_model_on_the_real_gpu():
    done = call("compare", "llama-2-70b", "-n", "64", "--gpu", "a100-80gb", "-q")
    assert done.code == 0
    assert "68,976,648,192 parameters" in done.out
    assert [line.split()[4] for line in done.out.splitlines()[3:]] == ["1103.6", "288.8", "153.0", "17.2"]


def test_estimate_answers_for_one_strategy():
    done = call("estimate", "70b", "--dp", "64", "--strategy", "zero2", "-f", "json")
    data = json.loads(done.out)
    assert (done.code, data["kind"], [row["strategy"] for row in data["results"]]) == (
        0,
        "estimate",
        ["zero2"],
    )


def test_estimate_refuses_what_the_strategy_cannot_do_and_compare_keeps_the_row():
    offload = ("70b", "--dp", "64", "--offload-params", "cpu")
    assert call("estimate", *offload, "--strategy", "zero2").code == 2
    rows = json.loads(call("compare", *offload, "-f", "json").out)["results"]
    assert [(row["strategy"], row["applicable"]) for row in rows] == [
        ("ddp", False), ("zero1", False), ("zero2", False), ("zero3", True),
    ]  # fmt: skip
    assert all(row["reason"] for row in rows[:3])
    nothing = call("compare", *offload, "--strategy", "ddp,zero1")
    assert (nothing.code, nothing.out) == (2, "")


@pytest.mark.parametrize(
    ("quantity", "more", "values"),
    [
        ("gpus", ("70b",), [None, None, None, 14]),
        ("params", ("-n", "64"), [5_000_000_000, 19_104_477_611, 36_056_338_026, 320_000_000_000]),
        ("strategy", ("70b", "-n", "64"), ["zero3"]),
    ],
)
def test_solve(quantity, more, values):
    done = call("solve", quantity, *more, "--gpu", "80GB", "-f", "json")
    assert (done.code, [answer["value"] for answer in json.loads(done.out)["answers"]]) == (0, values)


def test_solve_without_an_answer_exits_with_1():
    assert call("solve", "gpus", "70b", "--gpu", "80GB", "--strategy", "ddp").code == 1
    assert call("solve", "strategy", "1t", "-n", "1", "--gpu", "80GB").code == 1


@pytest.mark.parametrize(
    ("command", "gpu", "code"),
    [("compare", "80GB", 0), ("compare", "1GB", 1), ("estimate", "1GB", 1), ("estimate", "80GB", 0)],
)
def test_require_fit(command, gpu, code):
    done = call(command, "70b", "--dp", "64", "--gpu", gpu, "--require-fit")
    assert done.code == code
    assert done.out


def test_require_fit_counts_the_host_too():
    arguments = (
        "estimate",
        "70b",
        "--dp",
        "8",
        "--gpu",
        "80GB",
        "--gpus-per-node",
        "8",
        "--offload-optimizer",
        "cpu",
    )
    assert call(*arguments, "--host-memory", "2TB", "--require-fit").code == 0
    assert call(*arguments, "--host-memory", "1GB", "--require-fit").code == 1


def test_require_fit_needs_a_gpu():
    done = call("compare", "70b", "--dp", "64", "--require-fit")
    assert (done.code, done.out) == (2, "")


def test_explain():
    done = call("explain", "total", "70b", "--dp", "64", "--strategy", "zero3", "-f", "json")
    data = json.loads(done.out)
    assert (done.code, data["kind"], data["totals"]) == (0, "explain", {"zero3": 17_500_000_000})


def test_params():
    data = json.loads(call("params", "llama-3-8b", "-f", "json").out)
    assert (data["kind"], data["num_params"], data["num_layers"]) == ("params", 8_030_261_248, 32)
    assert sum(run["count"] * run["params"] for run in data["layers"]) < data["num_params"]


def test_presets():
    rows = json.loads(call("presets", "list", "gpus", "-f", "json").out)["rows"]
    assert {"h100-sxm-80", "a100-sxm-80"} <= {row["name"] for row in rows}
    assert json.loads(call("presets", "show", "gpu", "h100", "-f", "json").out)["name"] == "h100-sxm-80"
    assert call("presets").code == 0
    kinds = json.loads(call("presets", "list", "-f", "json").out)["counts"]
    assert kinds["gpus"] == len(rows)
    assert json.loads(call("presets", "list", "settings", "-f", "json").out)["counts"].keys() == {"settings"}
    shown = json.loads(call("presets", "show", "settings", "reduce_bucket_size", "-f", "json").out)
    assert shown["values"]["default"] == "500000000"
    assert "megatron:" not in shown["name"]
    assert call("presets", "show", "settings", "loss").code == 2  # Several frameworks have it.
    assert call("presets", "show", "gpus", "h10").code == 2


def test_flags_override_files_and_say_so(tmp_path):
    file = tmp_path / "job.json"
    file.write_text(json.dumps({"model": "7b", "gpus": 8, "gpu": "40GB", "precision": "fp32"}))
    data = json.loads(call("compare", "--job", str(file), "--gpu", "80GB", "-f", "json").out)
    request = data["request"]
    assert (request["capacity_bytes"]["value"], request["capacity_bytes"]["origin"]) == (80 * 10**9, "flag")
    assert request["precision"]["value"] == "fp32"
    assert request["precision"]["origin"].startswith("file:")


def test_a_job_on_standard_input():
    done = call(
        "compare", "--job", "-", "-f", "json", stdin='{"model": "7b", "gpus": 8, "strategy": "zero1,zero2"}'
    )
    assert [row["strategy"] for row in json.loads(done.out)["results"]] == ["zero1", "zero2"]


def test_a_deepspeed_file_names_its_strategy_and_loses_nothing_silently(tmp_path):
    file = tmp_path / "ds.json"
    file.write_text(json.dumps({"bf16": {"enabled": True}, "zero_optimization": {"stage": 2}, "mystery": 1}))
    data = json.loads(call("estimate", "7b", "--gpus", "8", "--deepspeed", str(file), "-f", "json").out)
    assert data["results"][0]["strategy"] == "zero2"
    assert any("mystery" in warning for warning in data["warnings"])


def test_strategies_by_fsdp_names_and_repeated_flags():
    typed = ("compare", "7b", "-n", "8", "-f", "json")
    rows = json.loads(call(*typed, "--strategy", "full_shard", "--strategy", "no_shard").out)["results"]
    assert [row["strategy"] for row in rows] == ["zero3", "ddp"]


def test_the_same_input_gives_the_same_bytes():
    assert call(*MAIN, "-f", "json").out == call(*MAIN, "-f", "json").out


FROM_FILES = {"completion", "check", "diff"}
"""Commands whose examples pipe into a shell or read the user's own files; their own tests run them."""


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in FROM_FILES])
def test_every_example_runs(name):
    for example in import_module(COMMANDS[name][0]).EXAMPLES:
        program, *arguments = shlex.split(example)
        assert program == "zerocalc"
        done = call(*arguments)
        assert (done.code, done.err) == (0, ""), example


def test_what_solve_finds_need_not_be_given_and_the_next_command_has_it_once():
    text = call("solve", "gpus", "70b", "-n", "64", "--gpu", "80GB").out
    assert "Warning: --gpus or --dp has no effect: it is what solve gpus finds" in text
    assert text.endswith("Next: zerocalc compare 70b --gpu 80GB --gpus 14\n")
    work = call("solve", "seq-len", "llama-3-8b", "-n", "8", "--gpu", "h100", "--micro-batch", "2").out
    assert "Warning" not in work
    assert re.search(r"--seq-len \d+ --strategy zero\d$", work)
    assert (
        "Next: zerocalc compare 339948339200" in call("solve", "params", "-n", "64", "--gpu", "a100-80gb").out
    )
