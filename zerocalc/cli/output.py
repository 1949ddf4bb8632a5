"""Where an answer goes and how it looks there: format, width, colour, character set, file."""

from __future__ import annotations

import os
import sys
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from zerocalc.cli.options import OUTPUT_WORDS
from zerocalc.errors import UsageError
from zerocalc.render import FORMATS, Look, format_for, formats_of, render

if TYPE_CHECKING:
    from collections.abc import Mapping

_SYMBOLS = "Ψ−–×·─"


class Sink(NamedTuple):
    """What the output options came to."""

    fmt: str
    look: Look
    path: str | None
    """The file to write; null is stdout."""


def emit(result: Any, typed: Mapping[str, Any]) -> None:
    """Write an answer in the format and to the place that the options name.

    Raises UsageError for a format or unit that does not exist, OSError where the place cannot be written.
    """
    sink = sink_of(typed, result.kind)
    text = render(result, sink.fmt, sink.look)
    if sink.path is not None:
        from zerocalc.cli.files import write_atomically

        write_atomically(sink.path, text)
        return
    _write(text)


def sink_of(typed: Mapping[str, Any], kind: str) -> Sink:
    """Read the output options of a kind of answer: flag first, then the file's suffix, then the environment."""
    path = typed.get("output")
    path = None if path in {None, "-"} else str(path)
    fmt = _format(typed.get("format"), path, formats_of(kind))
    units = _units(typed.get("units"))
    stream = sys.stdout
    to_terminal = path is None and stream is not None and stream.isatty()
    look = Look(
        width=_width(to_terminal) if path is None else None,
        units=units,
        color=_color(typed.get("color"), to_terminal=to_terminal),
        ascii=path is None and not _can_encode(getattr(stream, "encoding", None)),
        chart=bool(typed.get("chart")),
        quiet=bool(typed.get("quiet")),
        arguments=retyped(typed) if FORMATS[fmt].for_people else "",
    )
    return Sink(fmt, look, path)


def _format(flag: str | None, path: str | None, known: tuple[str, ...]) -> str:
    if flag:
        return one_of(flag, known, "--format")
    if path and (suffix := PurePath(path).suffix) and not path.startswith("/dev/"):
        return format_for(suffix)
    chosen = os.environ.get("ZEROCALC_FORMAT")
    return one_of(chosen, known, "ZEROCALC_FORMAT") if chosen else "table"


def _units(flag: str | None) -> str:
    if flag:
        return one_of(flag, ("GB", "GiB"), "--units")
    chosen = os.environ.get("ZEROCALC_UNITS")
    return one_of(chosen, ("GB", "GiB"), "ZEROCALC_UNITS") if chosen else "GB"


def one_of(text: str, allowed: tuple[str, ...], where: str, *, hint: str | None = None) -> str:
    """The allowed word that the text is, whatever its case. Raises UsageError naming the choices."""
    for word in allowed:
        if word.lower() == text.strip().lower().replace("_", "-"):
            return word
    from zerocalc.cli.group import near

    raise UsageError(
        f"{where}: must be one of {', '.join(allowed)} (got {text!r}){near(text.lower(), allowed)}",
        hint=hint,
    )


def _width(to_terminal: bool) -> int | None:
    """Columns: COLUMNS where set, else the terminal's own; None where there is no terminal."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isascii() and columns.isdigit() and int(columns[:6]) > 0:
        return int(columns[:6])
    if not to_terminal:
        return None
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def _color(flag: str | None, *, to_terminal: bool) -> bool:
    chosen = one_of(flag, ("auto", "always", "never"), "--color") if flag else "auto"
    if chosen != "auto":
        return chosen == "always"
    return to_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _can_encode(encoding: str | None) -> bool:
    """Whether a stream's encoding holds the symbols of a table."""
    try:
        _SYMBOLS.encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _write(text: str) -> None:
    """Write to stdout and make sure it arrived, so that a full disk is an error and not a silence."""
    stream = sys.stdout
    if stream is None:
        raise OSError("standard output is closed")
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


_FOUND = {"gpus": ("gpus", "dp"), "micro-batch": ("micro_batch",), "seq-len": ("seq_len",)}
"""The options that an answer of `solve` takes the place of."""


def retyped(typed: Mapping[str, Any]) -> str:
    """The question as it was typed, quoted for a shell, without the output's options and what the answer decides."""
    import shlex

    words: list[str] = []
    found = _FOUND.get(str(typed.get("quantity")), ())
    for name, value in typed.items():
        if (
            name in OUTPUT_WORDS
            or name in {"quantity", "require_fit", "strategy", "framework", *found}
            or value in (None, (), False)
        ):
            continue
        if name == "model":
            words.insert(0, shlex.quote(str(value)))
            continue
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(flag)
        for item in value if isinstance(value, tuple) else () if value is True else (value,):
            words += [flag, shlex.quote(str(item))]
    return " ".join(words)
