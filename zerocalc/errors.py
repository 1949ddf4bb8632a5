"""What can go wrong on the user's side. The core raises; the command line decides the exit code."""

from __future__ import annotations

LONGEST_SHOWN = 60
"""Characters of a value that an error quotes."""


class ZerocalcError(Exception):
    """A mistake the user can mend: what was wrong, what was got and allowed, and what to try."""

    code = "invalid"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(ZerocalcError):
    """Flags that contradict each other, or a required one that is missing."""

    code = "usage"


class SpecError(ZerocalcError):
    """A value outside what the job's specification allows."""

    code = "spec"


class UnknownNameError(ZerocalcError):
    """A name that no preset, strategy, framework or setting answers to."""

    code = "unknown_name"


class FileError(ZerocalcError):
    """A file that cannot be read, written, or understood."""

    code = "file"


def unknown_name(kind: str, got: str, known: list[str], *, hint: str | None = None) -> UnknownNameError:
    """Build the error for a misspelt name, with the near ones as suggestions."""
    near = near_names(got, known)
    suggestion = f"did you mean {' or '.join(repr(name) for name in near)}?" if near else None
    message = f"unknown {kind} {got!r}" + (f"; {suggestion}" if suggestion else "")
    return UnknownNameError(message, hint=hint)


def shown(value: object) -> str:
    """A value as an error may show it: `true` and `null` as files write them, on one line of bounded length."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    text = repr(value) if isinstance(value, str) else " ".join(str(value).split())
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 1]}…"


def near_names(got: str, known: list[str]) -> list[str]:
    """At most three names like the one given, the likest first; of a path only what follows the last slash counts."""
    from difflib import get_close_matches

    wanted = _last_part(got)
    by_last: dict[str, str] = {}
    for name in known:
        by_last.setdefault(_last_part(name), name)
    near = [by_last[last] for last in get_close_matches(wanted, by_last, n=3, cutoff=0.5)]
    return near + [name for name in known if wanted and wanted in name and name not in near][: 3 - len(near)]


def _last_part(name: str) -> str:
    return name.lower().rpartition("/")[2]
