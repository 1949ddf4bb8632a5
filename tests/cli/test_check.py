"""`zerocalc check` and `zerocalc diff` as people and CI meet them: exit codes, formats, files, git."""

import json
import os
import pty
import re
import stat
import subprocess
import sys
import xml.etree.ElementTree as ET
from contextlib import chdir
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests import example
from zerocalc.schemas import schema_text

from .running import ROOT, call, environment, process

BUDGET = '[[budget]]\nname = "{}"\njob = {{ model = "7b", gpus = 8, gpu = "{}" }}\n'
HOSTILE = 'a%b:c,d;"e<f>&|g::h'


@pytest.fixture
def repo(tmp_path, monkeypatch):
    repo = example.committed(tmp_path)
    monkeypatch.chdir(repo)
    return repo


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(*budgets):
    """zerocalc.toml from (name, gpu) pairs and text."""
    parts = [b if isinstance(b, str) else BUDGET.format(b[0].replace('"', '\\"'), b[1]) for b in budgets]
    Path("zerocalc.toml").write_text("".join(parts))


@pytest.mark.parametrize(
    ("budgets", "code", "last"),
    [
        ([("a", "80GB")], 0, "passed: 1 budget"),
        ([("a", "80GB"), ("b", "1GB")], 1, "failed: 2 budgets, 1 over"),
        ([("a", "80GB"), ("b", "1 parsec")], 2, "error: 2 budgets, 1 could not be checked"),
        ([("a", "1GB"), 'level = "warn"\n'], 0, "passed: 1 budget, 1 over with a warning only"),
        ([("a", "1GB"), ("b", "nonsense")], 2, "error: 2 budgets, 1 could not be checked, 1 over"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("fmt", ["table", "github", "markdown"])
def test_exit_codes_and_the_last_line(here, budgets, code, last, fmt):
    write(*budgets)
    done = call("check", "-f", fmt)
    assert (done.code, done.err) == (code, "")
    assert done.out.splitlines()[-1].replace("**", "").removeprefix("- ") == last


def test_a_failure_can_be_acted_on_without_the_docs(repo):
    example.deepspeed(repo, train_micro_batch_size_per_gpu=4)
    done = call("check")
    assert done.code == 1
    first = done.out.split("\n\n")[0].splitlines()
    assert first[0] == "FAIL fits (zerocalc.toml:10)"
    text = " ".join(" ".join(first).split())
    assert re.search(r"does not fit: \d+\.\d GB too much most of it logits, 25\.2 GB", text)
    assert "fix micro_batch = 2 (now 4, ds_config.json:train_micro_batch_size_per_gpu)" in text
    assert "grad_accum = 16 (now 8, ds_config.json:gradient_accumulation_steps)" in text


def test_value_and_limit_that_round_alike_are_shown_in_bytes(here):
    write(("a", "80GB"), "[[budget.limit]]\nmetric = 'memory.gpu.peak_bytes'\nmax = '13999999999B'\n")
    Path("zerocalc.toml").write_text(
        '[[budget]]\nname = "a"\njob = { model = "7b", gpus = 8, gpu = "80GB" }\n'
        "[[budget.limit]]\nmetric = 'memory.gpu.peak_bytes'\nmax = 13999999999\n"
    )
    out = " ".join(call("check").out.split())
    assert "14,000,000,000 B, at most 13,999,999,999 B: over by 1 B" in out


def test_json_and_baseline_and_diff_validate_against_their_schemas(repo):
    example.deepspeed(repo, stage=2)
    Path("zerocalc.toml").write_text(Path("zerocalc.toml").read_text() + BUDGET.format("broken", "h10"))
    for kind, arguments, code in (
        ("check", ("check", "-f", "json", "--baseline-rev", "HEAD"), 2),
        ("diff", ("diff", "--rev", "HEAD", "-f", "json"), 2),
    ):
        done = call(*arguments)
        assert done.code == code
        data = json.loads(done.out)
        jsonschema.validate(data, json.loads(schema_text(kind)))
        assert data["kind"] == kind
    example.git(repo, "checkout", "-q", ".")
    assert call("check", "-q", "--write-baseline", "b.json").code == 0
    jsonschema.validate(json.loads(Path("b.json").read_text()), json.loads(schema_text("baseline")))


def test_the_schemas_of_files_accept_the_example_and_refuse_what_the_reader_refuses():
    import tomllib

    schema = json.loads(schema_text("project"))
    jsonschema.Draft202012Validator.check_schema(schema)
    data = tomllib.loads((example.ROOT / "zerocalc.toml").read_text())
    jsonschema.validate(data, schema)
    for wrong in (
        {"bugdet": []},
        {"job": {"mico_batch": 1}},
        {"budget": [{"name": "a", "limit": [{"max": 1}]}]},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)
    job = json.loads(schema_text("job-file"))
    jsonschema.validate(
        {"model": "7b", "gpus": 8, "offload": {"optimizer": "cpu"}, "settings": {"a": 1}}, job
    )
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"model": "7b", "gpu": 8}, job)


def junit(text):
    """Parse a report and hold its structure against what CI systems read."""
    root = ET.fromstring(text)
    assert root.tag == "testsuites"
    (suite,) = root
    assert suite.tag == "testsuite"
    assert {"name", "tests", "failures", "errors", "skipped"} <= set(suite.attrib)
    for case in suite:
        assert case.tag == "testcase"
        assert {"classname", "name", "file", "line"} == set(case.attrib)
        assert [child.tag for child in case] in ([], ["failure"], ["error"], ["system-out"])
        for child in case:
            assert child.tag == "system-out" or {"type", "message"} == set(child.attrib)
    assert int(suite.get("tests")) == len(suite)
    assert int(suite.get("failures")) == len(suite.findall("testcase/failure"))
    assert int(suite.get("errors")) == len(suite.findall("testcase/error"))
    return suite


def test_junit_has_a_case_per_budget(here):
    write(("fine", "80GB"), (HOSTILE, "1GB"), ("broken", "a\\u0001b"), ("soft", "1GB"), 'level = "warn"\n')
    done = call("check", "-f", "junit")
    suite = junit(done.out)
    assert done.code == 2
    kinds = {case.get("name"): [child.tag for child in case] for case in suite}
    assert kinds == {"broken": ["error"], HOSTILE: ["failure"], "soft": ["system-out"], "fine": []}
    assert call("check", "-o", "report.xml").code == 2
    assert Path("report.xml").read_text() == done.out


def test_annotations_escape_what_they_must_and_stop_at_ten(here):
    write(*[(f"{HOSTILE}{i}", "1GB") for i in range(14)])
    lines = call("check", "-f", "github").out.splitlines()
    assert len(lines) == 12
    for line in lines[:10]:
        properties, message = re.fullmatch(r"::error ([^:]*)::(.*)", line).groups()
        named = dict(part.split("=", 1) for part in properties.split(","))
        assert list(named) == ["title", "file", "line"]
        assert named["title"].startswith('budget a%25b%3Ac%2Cd;"e<f>&|g%3A%3Ah')
        assert "%0A" in message
        assert re.search(r"%(?!25|0A|0D)", message) is None
    assert lines[10] == "::notice title=zerocalc::and 4 more"
    assert lines[11] == "failed: 14 budgets, 14 over"


def test_warnings_are_annotated_as_warnings(here):
    write(("a", "1GB"), 'level = "warn"\n')
    done = call("check", "-f", "github")
    assert done.code == 0
    assert done.out.startswith("::warning title=budget a,file=zerocalc.toml,line=1::")


def test_the_summary_is_appended_when_asked_for_or_under_github(here, monkeypatch):
    write(("a", "1GB"))
    step = here / "step.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(step))
    call("check")
    assert not step.exists()
    call("check", "-f", "github")
    once = step.read_text()
    assert once.startswith("**FAIL a (zerocalc.toml:1)**")
    call("check", "-f", "github")
    assert step.read_text() == 2 * once
    assert call("check", "--summary", "own.md").code == 1
    assert Path("own.md").read_text() == once


def test_a_summary_stays_below_what_github_takes(here, monkeypatch):
    import zerocalc.cli.check as module

    write(*[(f"b{i}", "1GB") for i in range(30)])
    monkeypatch.setattr(module, "MAX_SUMMARY_BYTES", 2000)
    call("check", "--summary", "own.md")
    text = Path("own.md").read_text()
    assert len(text.encode()) <= 2000
    assert text.splitlines()[-1].startswith("- cut here")


def test_the_other_commands_do_not_offer_the_formats_of_check():
    done = call("compare", "70b", "--dp", "64", "-f", "junit")
    assert done.code == 2
    assert "must be one of table, json, jsonl, csv, markdown" in done.err


@pytest.mark.parametrize("fmt", ["table", "json", "jsonl", "csv", "junit", "github", "markdown"])
def test_the_same_files_give_the_same_bytes(repo, fmt):
    example.deepspeed(repo, stage=2)
    one = process("check", "-f", fmt, PYTHONHASHSEED="1")
    two = process(
        "check", "-f", fmt, PYTHONHASHSEED="2", CI="true", GITHUB_ACTIONS="true", ZEROCALC_PRESETS="/no"
    )
    assert one == two
    assert (one.code, one.err) == (1, "")


def test_progress_only_on_a_terminal(here):
    write(*[(f"b{i}", "80GB") for i in range(60)])
    assert process("check").err == ""
    parent, child = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "zerocalc", "check"],
        stdout=subprocess.PIPE,
        stderr=child,
        env=environment(),
        check=False,
    )
    os.close(child)
    shown = os.read(parent, 10_000).decode()
    assert done.returncode == 0
    assert "checking 20 of 60" in shown
    assert shown.endswith("\r\x1b[K")


@pytest.mark.parametrize("columns", ["40", "60", "80", "120"])
def test_no_digit_is_cropped_at_any_width(repo, columns):
    example.deepspeed(repo, stage=2)
    wide, narrow = process("check"), process("check", COLUMNS=columns)
    numbers = re.findall(r"\d+\.\d+", wide.out)
    assert sorted(re.findall(r"\d+\.\d+", narrow.out)) == sorted(numbers)


def test_ascii_terminals(repo):
    example.deepspeed(repo, stage=2)
    done = process("check", PYTHONIOENCODING="ascii")
    assert done.code == 1
    assert done.out.isascii()
    assert process("diff", "--rev", "HEAD", PYTHONIOENCODING="ascii").out.isascii()


def test_a_baseline_is_written_whole_or_not_at_all(repo):
    assert call("check", "-q", "--write-baseline", "b.json").code == 0
    before = Path("b.json").read_text()
    Path("b.json").chmod(0o640)
    assert call("check", "--baseline", "b.json", "--write-baseline", "b.json").code == 0
    assert (Path("b.json").read_text(), stat.S_IMODE(Path("b.json").stat().st_mode)) == (before, 0o640)
    Path("zerocalc.toml").write_text(Path("zerocalc.toml").read_text() + BUDGET.format("broken", "h10"))
    assert call("check", "--write-baseline", "b.json").code == 2
    assert Path("b.json").read_text() == before
    assert call("check", "fits", "--write-baseline", "b.json").code == 2
    assert sorted(path.name for path in Path().glob("*.part")) == []


def test_the_project_file_may_name_the_baseline(repo):
    Path("zerocalc.toml").write_text('baseline = "b.json"\n' + Path("zerocalc.toml").read_text())
    missing = call("check")
    assert missing.code == 2
    assert "`zerocalc check --write-baseline b.json` writes it" in missing.err
    assert call("check", "-q", "--write-baseline", "b.json").code == 0
    assert "skipped" not in call("check").out
    example.deepspeed(repo, train_micro_batch_size_per_gpu=4)
    assert "since baseline" in call("check").out


def test_a_revision_as_the_baseline(repo):
    assert "skipped" not in call("check", "--baseline-rev", "main").out
    example.deepspeed(repo, train_micro_batch_size_per_gpu=4)
    done = call("check", "headroom", "--baseline-rev", "main")
    assert done.code == 1
    assert "micro_batch 2 → 4; logits +12.6 GB" in " ".join(done.out.split())
    assert call("check", "--baseline-rev", "main", "--baseline", "b.json").code == 2


def test_a_revision_without_budgets_is_an_empty_baseline(tmp_path, monkeypatch):
    repo = example.copy(tmp_path)
    monkeypatch.chdir(repo)
    example.git(repo, "init", "-q", "-b", "main")
    example.git(repo, "add", "model")
    example.git(repo, "commit", "-q", "-m", "before")
    done = call("check", "--baseline-rev", "main")
    assert done.code == 0
    assert "Warning: main: no zerocalc.toml" in done.out


def test_the_budgets_of_two_revisions(repo):
    example.deepspeed(repo, stage=2)
    example.git(repo, "commit", "-q", "-a", "-m", "stage 2")
    example.deepspeed(repo, stage=1)
    before = example.git(repo, "status", "--porcelain")
    two = call("diff", "--rev", "HEAD~1..HEAD", "fits")
    assert (two.code, two.err) == (0, "")
    assert "zero3 → zero2" in two.out
    assert two.out.splitlines()[-1].startswith("1 changed; peak per GPU of fits: 34.1 GB → ")
    assert "zero2 → zero1" in call("diff", "--rev", "HEAD").out
    assert example.git(repo, "status", "--porcelain") == before
    assert "4 unchanged" in call("diff", "--rev", "HEAD..HEAD").out


def test_revisions_from_a_folder_below_and_links(repo):
    Path("below").mkdir()
    Path("below/ds.json").symlink_to("../ds_config.json")
    Path("below/loop.json").symlink_to("loop.json")
    Path("below/zerocalc.toml").write_text(
        '[[budget]]\nname = "a"\njob = { model = "../model/config.json", gpus = 8, deepspeed = "ds.json", seq_len = 8 }\n'
    )
    example.git(repo, "add", "-A")
    example.git(repo, "commit", "-q", "-m", "below")
    example.deepspeed(repo, stage=2)
    with chdir("below"):
        done = call("diff", "--rev", "HEAD")
    assert (done.code, done.err) == (0, "")
    assert "zero3 → zero2" in done.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--rev", "nothing"), "git knows no such revision"),
        (("--rev", "HEAD..nothing"), "git knows no such revision"),
        (("--rev", "HEAD...HEAD"), "must be REV or REV1..REV2"),
        (("--rev", "HEAD.."), "must be REV or REV1..REV2"),
        (("--rev=--help",), "is no git revision"),
        (("a.json",), "diff compares two answers (got 1)"),
        (("none.json", "none.json"), "none.json: cannot be read: no such file"),
        (("zerocalc.toml", "zerocalc.toml"), "not valid JSON"),
        (("ds_config.json", "ds_config.json"), "not an answer of zerocalc"),
    ],
)
def test_diff_refuses_in_one_line(repo, arguments, says):
    done = call("diff", *arguments)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert len(done.err.split("\n\n")[0].splitlines()) == 1


def test_diff_outside_a_repository(here):
    write(("a", "80GB"))
    done = call("diff", "--rev", "HEAD")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: git rev-parse: ")


def test_answers_from_the_command_line_can_be_compared(here):
    call("compare", "70b", "--dp", "64", "--gpu", "80GB", "-o", "a.json")
    call("compare", "70b", "--dp", "128", "--gpu", "80GB", "-o", "b.json")
    done = call("diff", "a.json", "b.json")
    assert (done.code, done.err) == (0, "")
    assert "a.json → b.json; ~ changed, + new, − gone" in done.out.splitlines()[0]
    assert "64 → 128" in done.out
    assert done.out.splitlines()[-1].startswith("4 changed; peak per GPU of zero2: ") or "zero1" in done.out


def test_no_project_file_is_one_line(here):
    (here / ".git").mkdir()
    done = call("check")
    assert (done.code, done.out) == (2, "")
    assert "no zerocalc.toml" in done.err
    error = json.loads(call("check", "-f", "json").err)["error"]
    assert error["code"] == "file"


def test_check_does_not_load_what_it_does_not_need(here):
    write(("a", "80GB"))
    code = (
        "import sys; from zerocalc.cli import run; run(['check', '-f', 'json', '-o', 'x.json']); "
        "print([m for m in ('rich', 'numpy', 'yaml', 'hjson', 'subprocess') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


ACTION = ROOT / ".github" / "actions" / "zerocalc" / "action.yml"


def test_the_action_checks_the_example(repo, tmp_path):
    action = yaml.safe_load(ACTION.read_text())
    step = action["runs"]["steps"][-1]
    assert set(step["env"].values()) <= {f"${{{{ inputs.{name} }}}}" for name in action["inputs"]}
    workflow = yaml.safe_load((example.ROOT / ".github/workflows/memory.yml").read_text())
    uses = workflow["jobs"]["check"]["steps"][-1]
    assert set(uses["with"]) <= set(action["inputs"])

    (tmp_path / "bin").mkdir()
    shim = tmp_path / "bin" / "zerocalc"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m zerocalc "$@"\n')
    shim.chmod(0o755)
    summary = tmp_path / "summary.md"
    inputs = dict.fromkeys(step["env"], "") | {
        "INPUT_BASELINE_REV": "main",
        "INPUT_BUDGETS": "fits\nlong context",
    }
    settings = environment(
        **inputs, PATH=f"{shim.parent}:{os.environ['PATH']}", GITHUB_STEP_SUMMARY=str(summary)
    )

    def run():
        return subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", step["run"]],
            env=settings,
            capture_output=True,
            text=True,
            check=False,
        )

    green = run()
    assert (green.returncode, green.stdout, green.stderr) == (0, "passed: 2 budgets\n", "")
    example.deepspeed(repo, stage=2)
    red = run()
    assert red.returncode == 1
    assert red.stdout.startswith("::error title=budget fits,file=zerocalc.toml,line=10::")
    assert "FAIL fits" in summary.read_text()


def test_the_hook_runs_the_command():
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert (hook["entry"], hook["pass_filenames"]) == ("zerocalc check", False)


def test_a_long_list_of_what_passed_is_cut_in_the_table_only(here):
    write(*[(f"b{i}", "80GB") for i in range(130)], ("bad", "1GB"))
    out = call("check").out
    assert "30 more budgets passed; `--format json` has them" not in out
    assert "31 more budgets passed; `--format json` has them" in out
    assert len(json.loads(call("check", "-f", "json").out)["budgets"]) == 131


def test_inputs_that_changed_everywhere_are_said_once(tmp_path):
    for name, gpus in (("a", "8"), ("b", "16")):
        assert call("compare", "7b", "-n", gpus, "-o", str(tmp_path / f"{name}.json")).code == 0
    text = call("diff", str(tmp_path / "a.json"), str(tmp_path / "b.json")).out
    assert text.count("world_size") == 1
    assert "~ inputs of all that changed\n  world_size" in text
