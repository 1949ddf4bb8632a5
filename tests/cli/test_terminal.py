"""Real terminals: width, colour and character set as they are."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

from .running import MAIN, environment, process


def _on_a_terminal(columns, *arguments, **changes):
    """What a terminal of so many columns receives."""
    mine, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    running = subprocess.Popen(
        [sys.executable, "-m", "zerocalc", *arguments],
        stdin=theirs, stdout=theirs, stderr=theirs, env=environment(**changes), close_fds=True,
    )  # fmt: skip
    os.close(theirs)
    received = b""
    while True:
        try:
            chunk = os.read(mine, 65536)
        except OSError:
            break
        if not chunk:
            break
        received += chunk
    os.close(mine)
    assert running.wait(60) == 0
    return received.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [40, 60, 80, 120, 160])
def test_nothing_is_wider_than_the_terminal_but_commands(columns):
    text = _on_a_terminal(columns, *MAIN, NO_COLOR="1")
    assert "\x1b[" not in text
    assert max(len(line) for line in text.split("\n") if not line.startswith("Next: ")) <= columns
    for number in ("1120.0", "293.1", "155.3", "17.5", "−1040.0", "+62.5"):
        assert number in text


def test_colour_on_a_terminal_and_how_to_be_rid_of_it():
    assert "\x1b[31m" in _on_a_terminal(100, *MAIN)
    for rid in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b[" not in _on_a_terminal(100, *MAIN, **rid)
    assert "\x1b[" not in _on_a_terminal(100, *MAIN, "--color", "never")


def test_without_a_terminal_tables_have_their_natural_width_and_no_colour():
    text = process("presets", "show", "gpus", "h100").out
    assert "\x1b[" not in text
    assert max(map(len, text.split("\n"))) > 100
    assert "\x1b[31m" in process(*MAIN, "--color", "always").out


def test_columns_is_honoured_without_a_terminal():
    assert max(len(line) for line in process(*MAIN, "-q", COLUMNS="40").out.split("\n")) <= 40


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_a_stream_that_cannot_hold_the_symbols_gets_ascii(encoding):
    done = process(*MAIN, PYTHONIOENCODING=encoding)
    assert done.code == 0
    assert done.out.isascii()
    assert re.search(r"no -1040\.0", done.out)
    assert "3 Psi" in done.out


def test_a_dumb_terminal_gets_the_same_table():
    assert process(*MAIN, TERM="dumb").out == process(*MAIN).out
