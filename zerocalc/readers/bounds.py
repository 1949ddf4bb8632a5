"""What is refused wherever text is parsed: nesting without end, and a key given twice."""

from __future__ import annotations

from zerocalc.errors import FileError

MAX_DEPTH = 100


class DuplicateKeyError(FileError):
    """A mapping that names one key twice: which of the two counts differs between tools."""

    def __init__(self, label: str, key: object) -> None:
        super().__init__(
            f"{label}: key {short(str(key))} appears twice in one mapping", hint="keep one of them"
        )


def short(text: str, width: int = 60) -> str:
    """A quoted excerpt of bounded length, on one line."""
    return repr(text if len(text) <= width else text[: width - 1] + "…")
