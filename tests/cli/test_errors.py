"""Bad input: one clear line, exit 2, nothing on stdout."""

import json
import time

import pytest

from zerocalc.errors import shown

from .running import MAIN, call, process

BAD = {
    "no model": (("compare",), "which model"),
    "no ranks": (("compare", "70b"), "how many GPUs"),
    "zero": (("compare", "0", "--dp", "8"), "MODEL"),
    "negative model": (("compare", "-5b", "--dp", "8"), "negative"),
    "negative degree": (("compare", "7b", "--dp", "-8"), "--dp"),
    "nan": (("compare", "nan", "--dp", "8"), "nan"),
    "huge exponent": (("compare", "1e400", "--dp", "8"), "1e400"),
    "empty model": (("compare", "", "--dp", "8"), "empty"),
    "empty gpu": (("compare", "7b", "--dp", "8", "--gpu", ""), "--gpu"),
    "gpu of nothing": (("compare", "7b", "--dp", "8", "--gpu", "0GB"), "--gpu: must be above 0"),
    "no unit": (("compare", "7b", "--dp", "8", "--gpu", "80"), "no clear unit"),
    "half a unit": (("compare", "7b", "--dp", "8", "--gpu", "80g"), "no clear unit"),
    "misspelt gpu": (("compare", "7b", "--dp", "8", "--gpu", "h10"), "did you mean"),
    "misspelt model": (("compare", "lama-3-8b", "--dp", "8"), "did you mean"),
    "misspelt strategy": (("compare", "7b", "--dp", "8", "--strategy", "zero4"), "did you mean"),
    "misspelt framework": (("compare", "7b", "--dp", "8", "--framework", "papper"), "did you mean"),
    "misspelt command": (("compar", "7b"), "did you mean 'compare'"),
    "misspelt subcommand": (("presets", "lst"), "did you mean 'list'"),
    "misspelt option": (("compare", "7b", "--gpuss", "8"), "did you mean '--gpus'"),
    "missing value": (("compare", "7b", "--dp"), "requires an argument"),
    "one model too many": (("compare", "7b", "8b", "--dp", "8"), "unexpected"),
    "contradiction": (("compare", "7b", "--gpus", "8", "--dp", "4"), "contradict"),
    "does not divide": (("compare", "7b", "--gpus", "8", "--tp", "3"), "divisible"),
    "setting without a value": (("compare", "7b", "--dp", "8", "--set", "qwz"), "KEY=VALUE"),
    "a model in place of the quantity": (("solve", "llama-3-8b"), "QUANTITY: must be one of"),
    "a negative count": (("compare", "7b", "--gpus", "8", "--micro-batch", "-1"), "must be between 1 and"),
    "not a truth": (
        ("estimate", "7b", "--dp", "8", "--framework", "deepspeed", "--set", "overlap_comm=5"),
        "must be true or false (got '5')",
    ),
    "misspelt choice": (
        ("compare", "7b", "--dp", "8", "--checkpointing", "ful"),
        "did you mean 'full'",
    ),
    "unknown setting of one framework": (
        ("estimate", "7b", "--dp", "8", "--framework", "deepspeed", "--set", "reduce_bucket=1"),
        "did you mean 'reduce_bucket_size'",
    ),
    "an organisation's model": (
        ("compare", "meta-llama/Llama-3-8B", "--dp", "8"),
        "did you mean 'llama-3-8b'",
    ),
    "unknown setting": (("compare", "7b", "--dp", "8", "--set", "qqq=1"), "unknown setting"),
    "empty name in a list": (("compare", "7b", "--dp", "8", "--strategy", "zero1,,zero2"), "empty"),
    "two strategies for one": (("estimate", "7b", "--dp", "8", "--strategy", "zero1,zero2"), "one"),
    "missing file": (("compare", "./nowhere.json", "--dp", "8"), "nowhere.json"),
    "missing job": (("compare", "--job", "nowhere.json"), "nowhere.json"),
    "empty job": (("compare", "7b", "--dp", "8", "--job", ""), "--job: is empty"),
    "empty presets": (("compare", "7b", "--dp", "8", "--presets", ""), "--presets: is empty"),
    "folder for a job": (("compare", "--job", "."), "."),
    "unknown format": (("compare", "7b", "--dp", "8", "-f", "jsn"), "did you mean"),
    "unknown unit": (("compare", "7b", "--dp", "8", "--units", "MB"), "GB, GiB"),
    "unknown colour": (("compare", "7b", "--dp", "8", "--color", "red"), "auto, always, never"),
    "unknown suffix": (("compare", "7b", "--dp", "8", "-o", "x.xyz"), ".xyz"),
    "unknown quantity": (("solve", "gpu", "7b", "--gpu", "80GB"), "gpu"),
    "unknown term": (("explain", "optimzer", "7b", "--dp", "8"), "did you mean"),
    "unknown kind": (("presets", "list", "gpsu"), "did you mean"),
    "unknown schema": (("schema", "compar"), "did you mean 'compare'"),
    "unknown shell": (("completion", "tcsh"), "did you mean"),
    "a bare count has no tensors": (("params", "7b"), "count already"),
    "too many bytes a parameter": (
        ("compare", "7b", "--dp", "8", "--k", "1e5"),
        "--k: must be at most 1,024",
    ),
    "more than is counted": (
        ("estimate", "1e15", "--dp", "8", "--grad-accum", "1e7"),
        "sent in one step: 52,500,000,000,000,000,000,000 bytes is beyond",
    ),
    "more than a node holds": (
        (
            "estimate",
            "1e15",
            "--dp",
            "8e6",
            "--k",
            "1e3",
            "--gpus-per-node",
            "8e6",
            "--offload-optimizer",
            "cpu",
            "--framework",
            "deepspeed",
            "--set",
            "offload_param.buffer_size=1e15",
            "--offload-params",
            "nvme",
        ),
        "cpu of one node",
    ),
    "presets folder is none": (("compare", "llama-3-8b", "--dp", "8", "--presets", "nowhere"), "nowhere"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_line_and_exit_2(case):
    arguments, clue = BAD[case]
    done = call(*arguments)
    assert (done.code, done.out) == (2, ""), done.err
    first, *rest = done.err.splitlines()
    assert first.startswith("error: ")
    assert clue in first
    assert not first.endswith(".")
    assert rest == [] or (rest[0] == "" and rest[1].startswith("hint: ") and len(rest) == 2)


@pytest.mark.parametrize("case", BAD)
def test_under_json_the_error_is_an_object(case):
    arguments, clue = BAD[case]
    if {"-f", "-o"} & set(arguments) or arguments[0] in {"schema", "completion"}:
        return
    done = (
        call(*arguments, "-f", "json")
        if arguments[-1] != "--dp"
        else call(arguments[0], "-f", "json", *arguments[1:])
    )
    assert (done.code, done.out) == (2, "")
    error = json.loads(done.err)["error"]
    assert set(error) == {"code", "message", "hint"}
    assert clue in error["message"]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("solve", "llama-3-8b"), "it comes first: zerocalc solve gpus llama-3-8b --gpu 80GB"),
        (("compare", "7b", "--gpus", "0"), "`zerocalc compare --help` describes --gpus"),
        (
            ("estimate", "7b", "--dp", "8", "--framework", "deepspeed", "--set", "foo=1"),
            "zerocalc presets list settings",
        ),
    ],
)
def test_the_hint_says_what_to_try(arguments, hint):
    assert call(*arguments).err.splitlines()[-1] == f"hint: {hint}"


@pytest.mark.parametrize(
    ("value", "written"), [(True, "true"), (False, "false"), (None, "null"), ("a", "'a'"), (1, "1")]
)
def test_values_are_shown_as_files_write_them(value, written):
    assert shown(value) == written


@pytest.mark.parametrize(
    "way",
    [("--format", "json"), ("--format=json",), ("-fjson",), ("-f", "JSON"), ("-o", "x.json")],
)
def test_every_way_to_ask_for_json_is_understood_before_parsing(way):
    assert "error" in json.loads(call("compare", "--nonsense", *way).err)


def test_json_by_environment(monkeypatch):
    monkeypatch.setenv("ZEROCALC_FORMAT", "json")
    assert "error" in json.loads(call("compare").err)
    assert call("compare", "-f", "table").err.startswith("error: ")


def test_a_wrong_environment_is_named(monkeypatch):
    monkeypatch.setenv("ZEROCALC_FORMAT", "yaml")
    assert "ZEROCALC_FORMAT" in call(*MAIN).err
    monkeypatch.delenv("ZEROCALC_FORMAT")
    monkeypatch.setenv("ZEROCALC_UNITS", "MB")
    assert "ZEROCALC_UNITS" in call(*MAIN).err


def test_our_own_fault_is_one_line_and_70_with_the_traceback_on_demand(monkeypatch):
    def broken(*_args, **_kwargs):
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("zerocalc.questions.compare.compare", broken)
    done = call(*MAIN)
    assert (done.code, done.out) == (70, "")
    assert done.err.splitlines()[0] == "error: a fault of zerocalc: RuntimeError: two lines"
    assert "Traceback" not in done.err
    assert "Traceback" in call(*MAIN, "--debug").err


def test_interrupted(monkeypatch):
    def interrupted(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("zerocalc.questions.compare.compare", interrupted)
    assert call(*MAIN) == (130, "", "")


def test_arguments_that_are_no_text():
    done = process("compare", b"\xff\xfe", "--dp", "8")
    assert (done.code, done.out) == (2, "")
    assert "Traceback" not in done.err


@pytest.mark.parametrize("framework", ["paper", "deepspeed", "pytorch", "megatron"])
def test_the_deepest_model_that_is_accepted_takes_no_time(framework, tmp_path):
    config = {"model_type": "gpt2", "n_layer": 2000, "n_embd": 64, "n_head": 4, "vocab_size": 1000}
    (tmp_path / "config.json").write_text(json.dumps(config))
    start = time.perf_counter()
    work = ("--micro-batch", "1", "--seq-len", "64")
    assert call("compare", str(tmp_path), "-n", "8", *work, "--framework", framework, "-q").code == 0
    assert time.perf_counter() - start < 10  # About one second on an idle machine.


def test_nobodys_home_is_no_folder():
    done = call("compare", "~nobody-at-all/model", "-n", "8")
    assert done.code == 2
    assert "~nobody-at-all/model: no such file or folder" in done.err
