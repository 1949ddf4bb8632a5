"""What a person sees before the first answer."""

import pytest

from zerocalc import __version__
from zerocalc.cli import COMMANDS, INTRO
from zerocalc.cli.options import ANSWER_FORMATS, DRAWN_FORMATS, JOB_SECTIONS, REPORT_FORMATS
from zerocalc.jobs.givens import WORDS
from zerocalc.render import formats_of

from .running import call, process


def test_alone_it_shows_the_three_commands_people_need_first():
    done = call()
    assert (done.code, done.out) == (0, INTRO)
    for line in INTRO.splitlines():
        if line.startswith("  zerocalc "):
            assert call(*line.split()[1:]).code == 0


def test_the_version():
    assert call("--version").out == f"zerocalc {__version__}\n"


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_every_command_with_its_line(flag):
    done = call(flag)
    assert done.code == 0
    for name, (_, line) in COMMANDS.items():
        assert f"{name} " in done.out
        assert line in done.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_opens_with_examples(name):
    done = call(name, "--help")
    assert (done.code, done.err) == (0, "")
    assert done.out.index("Examples:") < done.out.index("-h, --help")


def test_options_come_in_sections_and_cover_every_word_of_a_job():
    text = call("compare", "--help").out
    assert all(f"\n{section}:\n" in text for section in (*JOB_SECTIONS, "Output"))
    assert [word for word in sorted(WORDS - {"model"}) if f"--{word.replace('_', '-')}" not in text] == []


@pytest.mark.parametrize("columns", ["40", "80", "120"])
def test_help_keeps_to_the_terminal(columns):
    done = process("compare", "--help", COLUMNS=columns)
    prose = [line for line in done.out.splitlines() if not line.startswith(("  zerocalc", "  -"))]
    assert max(map(len, prose)) <= max(int(columns), 60)


def test_the_formats_that_help_names_are_those_there_are():
    assert set(REPORT_FORMATS) == set(formats_of("check"))
    assert set(DRAWN_FORMATS) == set(formats_of("compare")) == set(formats_of("estimate"))
    assert set(ANSWER_FORMATS) == set(formats_of("solve")) == set(formats_of("presets"))
