"""Reading text that others wrote: bounded bytes, strict decoding, and four formats parsed without surprises.

Whatever is wrong with a file becomes one `FileError`: size, kind, encoding, syntax, duplicate keys, nesting, aliases
that expand without bound. PyYAML, hjson and tomllib are imported only when a file needs them.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from zerocalc.errors import FileError, ZerocalcError, shown
from zerocalc.readers.bounds import MAX_DEPTH, DuplicateKeyError, short

if TYPE_CHECKING:
    from collections.abc import Callable

KIB, MIB = 2**10, 2**20
MAX_TEXT_BYTES = 16 * MIB
MAX_BYTES = {"json": MAX_TEXT_BYTES, "toml": MIB, "yaml": MIB, "hjson": MIB}
"""How much of each format is parsed: the pure Python parsers are slow, and a configuration is small."""
MAX_INTEGER_DIGITS = 40
STDIN = "-"
_BOMS = (
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
_SUFFIXES = {".json": "json", ".hjson": "hjson", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}
_SEGMENT = r"[^\s.=\[\]{},#]+"
_LONG_DOTTED_KEY = re.compile(
    rf"(?<![^\s.=\[\]{{}},#]){_SEGMENT}(?:[ \t]*\.[ \t]*{_SEGMENT}){{{MAX_DEPTH},}}"
)
"""A key of so many parts that tomllib would need quadratic memory for it."""
_OS_ERRORS = {
    FileNotFoundError: "no such file",
    PermissionError: "permission denied",
    NotADirectoryError: "a part of the path is no folder",
    IsADirectoryError: "is a folder",
}


def read_text(path: str | Path, *, limit: int = MAX_TEXT_BYTES, stdin: bool = False) -> str:
    """Read a whole text file of at most `limit` bytes; `-` is standard input where `stdin` allows it.

    Raises FileError when it is missing, no regular file, too large, binary, or not UTF-8 (UTF-16 with a mark is read).
    """
    label = str(path)
    if stdin and label == STDIN:
        return _decode(sys.stdin.buffer.read(limit + 1), "<stdin>", limit)
    try:
        return _decode(_read_bytes(label, limit), label, limit)
    except (OSError, ValueError) as error:
        reason = next((text for kind, text in _OS_ERRORS.items() if isinstance(error, kind)), None)
        detail = reason or getattr(error, "strerror", None) or str(error)
        raise FileError(f"{_printable(label)}: cannot be read: {detail}") from None


def _printable(label: str) -> str:
    return label if label.isprintable() else short(label, 200)


def _read_bytes(label: str, limit: int) -> bytes:
    pipe = label == "/dev/stdin" or label.startswith("/dev/fd/")
    status = os.stat(label)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError
    if not stat.S_ISREG(status.st_mode) and not pipe:
        raise FileError(f"{label}: not a regular file")
    if status.st_size > limit:
        raise FileError(
            f"{label}: {status.st_size:,} bytes, more than the {limit:,} a configuration may have",
            hint="is this the file you meant?",
        )
    with open(label, "rb") as stream:
        return stream.read(limit + 1)


def _decode(data: bytes, label: str, limit: int) -> str:
    if len(data) > limit:
        raise FileError(f"{label}: more than {limit:,} bytes", hint="is this the file you meant?")
    mark, encoding = next(((mark, name) for mark, name in _BOMS if data.startswith(mark)), (b"", "utf-8"))
    try:
        text = data[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        raise FileError(
            f"{label}: not {encoding.upper()} text (byte {error.start + len(mark)}: {error.reason})",
            hint="save it as UTF-8",
        ) from None
    if "\0" in text:
        raise FileError(f"{label}: binary, not text", hint="is this the file you meant?")
    if not text.strip():
        raise FileError(f"{label}: is empty")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def parse_json(text: str, label: str) -> Any:
    """Parse strict JSON. Raises FileError with line and column; refuses duplicate keys, NaN and huge numbers."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        return _unique(items, label)

    def integer(digits: str) -> int:
        if len(digits) > MAX_INTEGER_DIGITS:
            raise FileError(f"{label}: {short(digits, 30)} is too large a number")
        return int(digits)

    def real(digits: str) -> float:
        if (value := float(digits)) in (float("inf"), float("-inf")):
            raise FileError(f"{label}: {short(digits, 30)} is too large a number")
        return value

    def constant(name: str) -> NoReturn:
        raise FileError(f"{label}: {name} is no JSON number")

    def parse() -> Any:
        return json.loads(
            text, object_pairs_hook=pairs, parse_int=integer, parse_float=real, parse_constant=constant
        )

    return _guarded(parse, "JSON", label)


def _unique(items: list[tuple[str, Any]], label: str) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in items:
        if key in result:
            raise DuplicateKeyError(label, key)
        result[key] = value
    return result


def _guarded(parse: Callable[[], Any], kind: str, label: str) -> Any:
    """Run a parser and turn whatever it raises into one FileError; bound the nesting of what it returns."""
    try:
        data = parse()
    except ZerocalcError:
        raise
    except (RecursionError, MemoryError):
        raise _too_deep(label) from None
    except Exception as error:  # parsers raise what they like on hostile input: all of it is "not valid"
        raise FileError(f"{label}: not valid {kind}: {_reason(error)}") from None
    _check_depth(data, label)
    return data


def _too_deep(label: str) -> FileError:
    return FileError(f"{label}: nested more than {MAX_DEPTH} levels deep")


def _reason(error: Exception) -> str:
    """One line: what the parser says, and where."""
    line, column = getattr(error, "lineno", None), getattr(error, "colno", None)
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        line, column = mark.line + 1, mark.column + 1
    message = (
        getattr(error, "problem", None) or getattr(error, "msg", None) or str(error) or type(error).__name__
    )
    first = str(message).splitlines()[0][:200]
    return f"{first} (line {line}, column {column})" if line is not None else first


def _check_depth(data: Any, label: str) -> None:
    level = [data]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for node in level
            if isinstance(node, (dict, list, tuple, set))
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, (dict, list, tuple, set))
        ]
        if not level:
            return
    raise _too_deep(label)


def parse_hjson(text: str, label: str) -> Any:
    """Parse JSON the way DeepSpeed does: strictly, and as Hjson (comments, bare words, trailing commas) if that fails.

    Raises FileError; when the optional `hjson` package is missing, the hint says how to get it.
    """
    try:
        return parse_json(text, label)
    except DuplicateKeyError:
        raise
    except FileError as error:
        if "not valid JSON" not in error.message:
            raise
        return _parse_hjson(text, label, error)


def _parse_hjson(text: str, label: str, strict: FileError) -> Any:
    _check_size(text, "hjson", label)
    try:
        import hjson
    except ImportError:
        hint = "if it is Hjson (comments, trailing commas, bare words): pip install 'zerocalc[hjson]'"
        raise FileError(strict.message, hint=hint) from None

    def parse() -> Any:
        return hjson.loads(text, object_pairs_hook=lambda items: _unique(items, label))

    try:
        return _guarded(parse, "Hjson", label)
    except DuplicateKeyError:
        raise
    except FileError as error:
        if "not valid" not in error.message:
            raise
        raise FileError(
            strict.message, hint=f"as Hjson neither: {error.message.rpartition('Hjson: ')[2]}"
        ) from None


def parse_toml(text: str, label: str) -> Any:
    """Parse TOML. Raises FileError with line and column."""
    import tomllib

    _check_size(text, "toml", label)
    if _LONG_DOTTED_KEY.search(text):
        raise _too_deep(label)
    return _guarded(lambda: tomllib.loads(text), "TOML", label)


def parse_yaml(text: str, label: str, *, twice: list[str] | None = None) -> Any:
    """Parse YAML as PyYAML does (1.1: `5e8` is a string, a bare `no` is false), in bounded time and memory.

    A key given twice is refused, or noted in `twice`; then the last counts.
    """
    _check_size(text, "yaml", label)
    try:
        from zerocalc.readers.safeyaml import load
    except ImportError:
        raise FileError(f"{label}: reading YAML needs PyYAML", hint="pip install 'zerocalc[yaml]'") from None
    return _guarded(lambda: load(text, label, twice=twice), "YAML", label)


def _check_size(text: str, kind: str, label: str) -> None:
    if len(text) > MAX_BYTES[kind]:
        raise FileError(
            f"{label}: {len(text):,} characters, more than the {MAX_BYTES[kind]:,} a {kind} file may have"
        )


PARSERS: dict[str, Callable[[str, str], Any]] = {
    "json": parse_json,
    "hjson": parse_hjson,
    "toml": parse_toml,
    "yaml": parse_yaml,
}


def read_mapping(
    path: str | Path,
    *,
    default: str,
    stdin: bool = False,
    only: str | None = None,
    twice: list[str] | None = None,
) -> dict[str, Any]:
    """Read a file whose suffix says its format (`default` for any other), and insist on a mapping at the top.

    `only` reads the file in that format whatever its suffix; `twice` collects keys that YAML names twice, which are
    otherwise refused. Raises FileError.
    """
    text = read_text(path, stdin=stdin)
    label = "<stdin>" if str(path) == STDIN and stdin else str(path)
    kind = only or _SUFFIXES.get(Path(label).suffix.lower(), default)
    data = parse_yaml(text, label, twice=twice) if kind == "yaml" else PARSERS[kind](text, label)
    if not isinstance(data, dict):
        got = "nothing" if data is None else shown(data)
        raise FileError(f"{label}: must hold a mapping of keys to values (got {got})")
    return data
