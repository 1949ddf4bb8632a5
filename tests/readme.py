"""The README's commands and what they print. `python -m tests.readme` writes the outputs anew; a test compares them."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
_BLOCK = re.compile(r"```console\n(?P<body>.*?)```", re.DOTALL)


def run(command: str) -> str:
    """What `$ zerocalc …` prints on stdout and stderr, run in this process from the repository's root."""
    from zerocalc.cli import main

    words = shlex.split(command)
    assert words[0] == "zerocalc", command
    out = io.StringIO()
    argv, cwd = sys.argv, Path.cwd()
    try:
        sys.argv = words
        os.chdir(ROOT)
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(out),
            contextlib.suppress(SystemExit),
        ):
            main()
    finally:
        sys.argv = argv
        os.chdir(cwd)
    return out.getvalue()


def commands(body: str) -> Iterator[tuple[str, str]]:
    """Each `$` line of a block with the lines below it."""
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        while command.endswith("\\"):
            more, _, printed = printed.partition("\n")
            command = command[:-1] + more.strip()
        yield command, printed


def rewritten(text: str) -> str:
    """The README with every block's output as it is now."""

    def block(match: re.Match[str]) -> str:
        body = re.sub(r"\\\n\s*", "", match["body"])
        parts = [f"$ {command}\n{run(command).rstrip()}\n" for command, _ in commands(body)]
        return "```console\n" + "\n".join(parts) + "```"

    return _BLOCK.sub(block, text)


if __name__ == "__main__":
    README.write_text(rewritten(README.read_text(encoding="utf-8")), encoding="utf-8")
