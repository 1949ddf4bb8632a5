"""Where the answer goes: whole or not at all, and quietly when nobody reads it."""

import json
import os
import stat
import subprocess
import sys

import pytest

from .running import MAIN, call, environment, process

FULL = "/dev/full"
needs_full = pytest.mark.skipif(not os.path.exists(FULL), reason="no /dev/full here")


def test_the_suffix_chooses_the_format_and_the_flag_overrides_it(tmp_path):
    call(*MAIN, "-o", tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text())["kind"] == "compare"
    call(*MAIN, "-o", tmp_path / "a.md")
    assert (tmp_path / "a.md").read_text().startswith("**70b")
    call(*MAIN, "-o", tmp_path / "b.json", "-f", "csv")
    assert (tmp_path / "b.json").read_text().startswith("strategy,")
    done = call(*MAIN, "-o", tmp_path / "plain")
    assert (done.code, done.out) == (0, "")
    assert "1120.0" in (tmp_path / "plain").read_text()


def test_a_dash_is_stdout():
    assert call(*MAIN, "-o", "-").out == call(*MAIN).out


def test_a_file_is_replaced_whole_and_keeps_its_mode(tmp_path):
    target = tmp_path / "answer.json"
    target.write_text("old")
    target.chmod(0o640)
    assert call(*MAIN, "-o", target).code == 0
    assert json.loads(target.read_text())
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["answer.json"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to("real.json")
    assert call(*MAIN, "-o", tmp_path / "link.json").code == 0
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "real.json").read_text())


@pytest.mark.parametrize("target", ["", "nowhere/x.json", "x" * 300 + ".json", "a\0b.json"])
def test_a_place_that_cannot_be_written_leaves_nothing(tmp_path, target):
    path = tmp_path / target if target and "\0" not in target else target or str(tmp_path)
    done = call(*MAIN, "-f", "table", "-o", path)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder(tmp_path):
    tmp_path.chmod(0o500)
    assert call(*MAIN, "-o", tmp_path / "x.json").code == 2


def test_a_failure_half_way_leaves_the_old_file(tmp_path, monkeypatch):
    target = tmp_path / "answer.json"
    target.write_text("old")

    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    done = call(*MAIN, "-o", target)
    assert (done.code, target.read_text(), os.listdir(tmp_path)) == (2, "old", ["answer.json"])
    assert "no space left" in json.loads(done.err)["error"]["message"]


@needs_full
def test_a_full_disk_as_a_file():
    done = call(*MAIN, "-f", "table", "-o", FULL)
    assert done.code == 2
    assert "no space left on device" in done.err


@needs_full
@pytest.mark.parametrize("arguments", [MAIN, (*MAIN, "-f", "json"), ("--help",), ("schema", "compare"), ()])
def test_a_full_disk_behind_stdout(arguments):
    with open(FULL, "w") as full:
        done = process(*arguments, stdout=full)
    assert done.code == 2
    assert "no space left on device" in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize("arguments", [MAIN, ("presets", "list", "-f", "json"), ("--help",)])
def test_a_closed_pipe_ends_silently_with_141(arguments):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        done = process(*arguments, stdout=closed)
    assert (done.code, done.err) == (141, "")


def test_no_stdout_at_all():
    script = f"{sys.executable} -m zerocalc {' '.join(MAIN)} >&-"
    done = subprocess.run(
        ["sh", "-c", script], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_units_and_format_by_environment(monkeypatch):
    monkeypatch.setenv("ZEROCALC_UNITS", "GiB")
    assert "GiB per GPU" in call(*MAIN).out
    assert "GB per GPU" in call(*MAIN, "--units", "GB").out
    monkeypatch.setenv("ZEROCALC_FORMAT", "csv")
    assert call(*MAIN).out.startswith("strategy,")


def test_the_retyped_question_is_quoted_and_runs():
    done = call(
        "compare", "7b", "--dp", "8", "--gpu", "80 GB", "--also", "reward:1b", "--set", "working_memory=unit"
    )
    command = done.out.splitlines()[-1].removeprefix("Next: zerocalc ")
    import shlex

    assert "'80 GB'" in command
    assert call(*shlex.split(command)).code == 0


def test_links_in_a_circle_are_an_error_and_stay(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    done = call(*MAIN, "-o", tmp_path / "loop")
    assert (done.code, done.out) == (2, "")
    assert "symbolic links" in done.err
    assert (tmp_path / "loop").is_symlink()


@pytest.mark.parametrize(("place", "clue"), [("", "--output: is empty"), ("new.json/", "is a directory")])
def test_what_is_no_file_name(tmp_path, monkeypatch, place, clue):
    monkeypatch.chdir(tmp_path)
    done = call(*MAIN, "-o", place)
    assert (done.code, done.out) == (2, "")
    assert clue in done.err
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="no /dev/stdout here")
def test_stdout_by_its_name_is_written_where_it_leads():
    done = process(*MAIN, "-f", "json", "-o", "/dev/stdout")
    assert (done.code, json.loads(done.out)["kind"]) == (0, "compare")


def test_an_error_is_readable_in_ascii_and_as_json_in_any_encoding():
    arguments = ("compare", "7b", "-n", "8", "--tp", "3")
    assert "tp*pp*cp = 3*1*1" in process(*arguments, PYTHONIOENCODING="ascii").err
    done = process(*arguments, "-f", "json", PYTHONIOENCODING="ascii")
    assert "tp·pp·cp" in json.loads(done.err)["error"]["message"]
