"""The project file: where it is found, what it may say, and on which line a complaint points."""

import os
import time

import pytest

from zerocalc.errors import FileError, SpecError, ZerocalcError
from zerocalc.jobs.project import find_project, read_project

BUDGET = '[[budget]]\nname = "a"\njob = { model = "7b", gpus = 8 }\n'


def written(folder, text, name="zerocalc.toml"):
    path = folder / name
    path.write_bytes(text) if isinstance(text, bytes) else path.write_text(text)
    return path


def refused(folder, text, name="zerocalc.toml"):
    with pytest.raises(ZerocalcError) as caught:
        read_project(written(folder, text, name))
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 400
    return caught.value


def test_the_nearest_file_is_found_up_to_the_repository(tmp_path, monkeypatch):
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    deep = tmp_path / "repo" / "a" / "b"
    deep.mkdir(parents=True)
    written(tmp_path, BUDGET)
    monkeypatch.chdir(deep)
    with pytest.raises(FileError, match=r"no zerocalc\.toml"):
        find_project()
    written(tmp_path / "repo", "[tool.zerocalc]\n", "pyproject.toml")
    assert find_project() == tmp_path / "repo" / "pyproject.toml"
    written(tmp_path / "repo", BUDGET)
    assert find_project() == tmp_path / "repo" / "zerocalc.toml"
    written(tmp_path / "repo" / "a", "[tool.other]\n", "pyproject.toml")
    assert find_project() == tmp_path / "repo" / "zerocalc.toml"


def test_pyproject_and_own_file_say_the_same(tmp_path):
    own = read_project(written(tmp_path, BUDGET))
    (tmp_path / "p").mkdir()
    text = "[project]\nname = 'x'\n" + BUDGET.replace("[[budget", "[[tool.zerocalc.budget")
    shared = read_project(written(tmp_path / "p", text, "pyproject.toml"))
    assert own.project == shared.project
    assert (own.lines.of(0, key="name"), shared.lines.of(0, key="name")) == (2, 4)


def test_a_pyproject_that_is_not_read_is_said(tmp_path):
    written(tmp_path, "[tool.zerocalc]\n", "pyproject.toml")
    assert "is not read" in read_project(written(tmp_path, BUDGET)).warnings[0]
    written(tmp_path, "not toml [", "pyproject.toml")
    assert read_project(written(tmp_path, BUDGET)).warnings == ()


def test_lines_of_limits_and_keys(tmp_path):
    text = (
        "# [[budget]]\n" + BUDGET + "[[budget.limit]]\nmetric = 'fits'\nequals = true\n"
        "[[budget.limit]]\nmetric = 'headroom_bytes'\nmin = '1GB'\n[[budget]]\nname = 'b'\n[budget.job]\nmodel = '7b'\n"
    )
    lines = read_project(written(tmp_path, text)).lines
    assert [lines.of(0), lines.of(0, 0), lines.of(0, 1, "metric"), lines.of(1), lines.of(1, key="model")] == [
        2, 5, 9, 11, 14,
    ]  # fmt: skip


def test_headers_inside_text_are_no_headers(tmp_path):
    text = f'[job]\nmodel = """\n[[budget]]\n"""\n{BUDGET}'
    assert read_project(written(tmp_path, text)).lines.of(0) == 5


def test_budgets_in_one_line_are_read_and_stand_on_line_one(tmp_path):
    file = read_project(written(tmp_path, "budget = [{ name = 'a', job = { model = '7b', gpus = 8 } }]\n"))
    assert (file.project.budget[0].name, file.lines.of(0)) == ("a", 1)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("bugdet = []\n", "zerocalc.toml:1: unknown key 'bugdet'; did you mean 'budget'?"),
        (f"{BUDGET}lim = 1\n", "zerocalc.toml:4: budget 'a': unknown key 'lim'; did you mean 'limit'?"),
        (f"{BUDGET}level = 'fatal'\n", "zerocalc.toml:4: budget 'a': level: must be error or warn"),
        (f"{BUDGET}limit = 3\n", "zerocalc.toml:4: budget 'a': limit: must be tables"),
        (f"{BUDGET}[[budget.limit]]\nmax = 1\n", "zerocalc.toml:4: budget 'a': metric is missing"),
        (f"{BUDGET}[[budget.limit]]\nmetric = 'fits'\n", "zerocalc.toml:4: budget 'a': fits has no bound"),
        (f"{BUDGET}[[budget.limit]]\nmetric = 'fits'\nequal = true\n", "zerocalc.toml:6: budget 'a': unknown key 'equal'"),
        (f"{BUDGET}[[budget.limit]]\nmetric = 'fits'\nmax = true\n", "zerocalc.toml:6: budget 'a': max: must be a size"),
        (f"{BUDGET}[[budget.limit]]\nmetric = 'fits'\nmax = nan\n", "zerocalc.toml:6: budget 'a': max: must be a size"),
        (f"{BUDGET}[[budget.limit]]\nmetric = 'fits'\nmax = []\n", "zerocalc.toml:6: budget 'a': max: must be a size"),
        ("[[budget]]\njob = {}\n", "zerocalc.toml:1: budget 1: name is missing"),
        ("[[budget]]\nname = ''\n", "zerocalc.toml:2: budget '': name: must be a name"),
        ("[[budget]]\nname = \"a\\nb\"\n", "zerocalc.toml:2: name: must be printable"),
        ("[[budget]]\nname = 3\n", "zerocalc.toml:2: budget 1: name: must be a name"),
        (f"{BUDGET}{BUDGET}", "zerocalc.toml:5: budget 'a' appears twice"),
        ("budget = 3\n", "zerocalc.toml:1: budget: must be tables"),
        ("budget = [3]\n", "budget"),
        ("job = 3\n", "zerocalc.toml:1: job: must be a table of flags"),
        ("baseline = 3\n", "zerocalc.toml:1: baseline: must be the path of a file"),
    ],
)  # fmt: skip
def test_what_it_may_not_say_is_refused_with_file_and_line(tmp_path, monkeypatch, text, says):
    monkeypatch.chdir(tmp_path)
    error = refused(tmp_path, text)
    assert isinstance(error, SpecError)
    assert says in error.message


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_marks_and_line_ends_do_not_matter(tmp_path, encoding):
    file = read_project(written(tmp_path, BUDGET.replace("\n", "\r\n").encode(encoding)))
    assert (file.project.budget[0].name, file.lines.of(0, key="name")) == ("a", 2)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe\xff",
        b"\x00\x01",
        b"[[budget]\n",
        b"a = " + b"[" * 5000,
        b".".join([b"a"] * 5000) + b" = 1",
        b"a = " + b"9" * 100_000,
        b"a = 1\na = 2\n",
        b"# " + b"x" * (2**20 + 1),
        b'name = "' + b"x" * 500_000 + b'"',
        b"[[budget]]\n" * 20_000,
        b"\n".join(b"[[budget]]\nname = 'b%d'" % i for i in range(10_001)),
        (BUDGET + "[[budget.limit]]\nmetric = 'fits'\nequals = true\n" * 101).encode(),
        b'[[budget]]\nname = "' + b"x" * 201 + b'"',
    ],
    ids=lambda text: repr(text[:12]),
)
def test_hostile_files_are_one_line_in_bounded_time(tmp_path, text):
    start = time.perf_counter()
    refused(tmp_path, text)
    assert time.perf_counter() - start < 5


def test_no_file_a_folder_a_loop_and_no_table(tmp_path):
    with pytest.raises(FileError, match="no such file"):
        read_project(tmp_path / "none.toml")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(FileError, match="is a folder"):
        read_project(tmp_path / "folder.toml")
    os.symlink("loop.toml", tmp_path / "loop.toml")
    with pytest.raises(FileError, match="cannot be read"):
        read_project(tmp_path / "loop.toml")
    assert "[tool.zerocalc]" in refused(tmp_path, "[tool]\n", "pyproject.toml").message
