"""What goes wrong, as one line on stderr and an exit code. Under `--format json` the line is an object."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NamedTuple

import click

from zerocalc.errors import ZerocalcError

if TYPE_CHECKING:
    from collections.abc import Sequence

OK, NO, USAGE, FAULT, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 70, 130, 141
"""0 answered, 1 the answer is no, 2 the user's to mend, 70 ours to mend, 130 Ctrl-C, 141 the reader went away."""


class Failure(NamedTuple):
    """An error in the words of the command line."""

    code: str
    message: str
    hint: str | None
    exit_code: int = USAGE


def report(error: Exception, arguments: Sequence[str]) -> int:
    """Say what went wrong on stderr, and return the exit code."""
    failure = failure_of(error, arguments)
    if failure.exit_code == FAULT and "--debug" in arguments:
        import traceback

        traceback.print_exception(error)
    if isinstance(error, OSError):
        silence_stdout()
    _write(_as_json(failure) if wants_json(arguments) else _as_text(failure, color=_in_color(arguments)))
    return failure.exit_code


def failure_of(error: Exception, arguments: Sequence[str]) -> Failure:
    """Turn any exception into a failure; what nobody foresaw is our fault."""
    if isinstance(error, ZerocalcError):
        return Failure(error.code, error.message, error.hint or _where_told(error.message, arguments))
    if isinstance(error, click.ClickException):
        return _click_failure(error, arguments)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else "writing the answer: "
        return Failure("file", f"{where}{(error.strerror or str(error)).lower()}", None)
    if isinstance(error, UnicodeEncodeError):
        return Failure(
            "file", f"the output cannot hold {error.object[error.start]!r}", "set PYTHONIOENCODING=utf-8"
        )
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return Failure(
        "internal", f"a fault of zerocalc: {text}", "run again with --debug for the traceback", FAULT
    )


def _where_told(message: str, arguments: Sequence[str]) -> str | None:
    """Where an option or argument that the message begins with is described."""
    word = message.partition(" ")[0]
    if not arguments or not (word.startswith("--") or (word.endswith(":") and word.isupper())):
        return None
    return f"`zerocalc {arguments[0]} --help` describes {word.rstrip(':')}"


def _click_failure(error: click.ClickException, arguments: Sequence[str]) -> Failure:
    """One of click's own complaints, in the same form as ours."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else " ".join(["zerocalc", *arguments[:1]])
    hint = f"`{command} --help` shows what there is"
    if isinstance(error, click.NoSuchOption):
        return _no_such_option(error, arguments, hint)
    message = error.format_message().strip().rstrip(".").replace("\n", " ")
    return Failure("usage", message[:1].lower() + message[1:], hint)


def _no_such_option(error: click.NoSuchOption, arguments: Sequence[str], hint: str) -> Failure:
    name = error.option_name
    negative = next((text for text in arguments if text.startswith(name) and text[1:2].isdigit()), None)
    if negative is not None:
        return Failure(
            "spec", f"{negative}: a negative number is neither a model nor an option", "counts start at 1"
        )
    near = f"; did you mean {' or '.join(map(repr, error.possibilities[:2]))}?" if error.possibilities else ""
    return Failure("usage", f"no such option {name!r}{near}", hint)


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether the answer was to be JSON, as far as the arguments say, even where they cannot be parsed."""
    chosen = os.environ.get("ZEROCALC_FORMAT", "").lower()
    words = list(arguments)
    for index, word in enumerate(words):
        following = words[index + 1] if index + 1 < len(words) else ""
        if word in {"-o", "--output"} and following.endswith(".json"):
            chosen = "json"
    for index, word in enumerate(words):
        if word in {"-f", "--format"} and index + 1 < len(words):
            chosen = words[index + 1].lower()
        elif word.startswith("--format="):
            chosen = word.removeprefix("--format=").lower()
        elif word.startswith("-f") and not word.startswith("--") and len(word) > 2:
            chosen = word[2:].removeprefix("=").lower()
    return chosen in {"json", "jsonl"}


def _as_json(failure: Failure) -> str:
    import json

    body = {"code": failure.code, "message": failure.message, "hint": failure.hint}
    return json.dumps({"error": body})


def _as_text(failure: Failure, *, color: bool) -> str:
    def paint(word: str, tone: str) -> str:
        return click.style(word, fg=tone, bold=True) if color else word

    line = f"{paint('error:', 'red')} {failure.message}"
    return f"{line}\n\n{paint('hint:', 'cyan')} {failure.hint}" if failure.hint else line


def _in_color(arguments: Sequence[str]) -> bool:
    """Whether stderr is a terminal that wants colour."""
    terminal = sys.stderr is not None and sys.stderr.isatty()
    refused = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or "never" in arguments
    return terminal and not refused


def _write(text: str) -> None:
    """Write a line to stderr, whatever it can encode; a stderr that is gone is not worth a second error."""
    if sys.stderr is None:
        return
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    safe = _encodable(text, encoding)
    try:
        sys.stderr.write(safe + "\n")
        sys.stderr.flush()
    except OSError:
        return


def _encodable(text: str, encoding: str) -> str:
    """The text in what an encoding holds: symbols in ASCII's words, anything else by its number."""
    try:
        return text.encode(encoding).decode(encoding)
    except UnicodeEncodeError:
        from zerocalc.render.document import ascii_text

        return ascii_text(text)


def silence_stdout() -> None:
    """Point stdout at nothing, so that the interpreter does not complain again while it exits."""
    try:
        descriptor = sys.stdout.fileno()
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, descriptor)
        os.close(nothing)
    except (OSError, ValueError, AttributeError):
        return
