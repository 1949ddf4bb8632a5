"""Every command of the README runs and prints what stands there."""

from __future__ import annotations

import re

import pytest

from tests.readme import _BLOCK, README, commands, run

TEXT = README.read_text(encoding="utf-8")
CASES = [case for match in _BLOCK.finditer(TEXT) for case in commands(match["body"])]


@pytest.mark.parametrize(("command", "printed"), CASES, ids=[command for command, _ in CASES])
def test_the_command_prints_what_the_readme_shows(command, printed, monkeypatch):
    for name in ("ZEROCALC_FORMAT", "ZEROCALC_UNITS", "ZEROCALC_PRESETS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    assert run(command).rstrip() == printed.rstrip()


def test_python_examples_run():
    for code in re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL):
        exec(compile(code, "README.md", "exec"), {})


def test_it_names_every_command():
    from zerocalc.cli import COMMANDS

    assert [name for name in COMMANDS if f"zerocalc {name}" not in TEXT] == []
