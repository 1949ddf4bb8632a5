"""Run the command line as a process, or in this one."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from zerocalc.cli import run

ROOT = Path(__file__).parents[2]
MAIN = ("compare", "70b", "--dp", "64", "--gpu", "80GB")


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


def environment(**changes):
    """This process's environment without what changes an answer's look."""
    kept = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith("ZEROCALC") and k not in {"COLUMNS", "NO_COLOR"}
    }
    kept |= {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", "TERM": "xterm"}
    return {k: v for k, v in (kept | changes).items() if v is not None}


def process(*arguments, cwd=None, stdin=None, stdout=subprocess.PIPE, text=True, **changes):
    """The command line as its own process."""
    done = subprocess.run(
        [sys.executable, "-m", "zerocalc", *arguments],
        env=environment(**changes), cwd=cwd, input=stdin, stdout=stdout, stderr=subprocess.PIPE,
        text=text, encoding="utf-8" if text else None, timeout=60, check=False,
    )  # fmt: skip
    return Outcome(done.returncode, done.stdout, done.stderr)


def call(*arguments, stdin=""):
    """The command line in this process: the same code, a hundred times faster."""
    out, err, before = io.StringIO(), io.StringIO(), sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run([str(argument) for argument in arguments])
    finally:
        sys.stdin = before
    return Outcome(code, out.getvalue(), err.getvalue())
