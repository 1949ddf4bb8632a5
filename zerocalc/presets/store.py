"""Where presets lie and how their rows are read: a user's folder first, then the shipped files.

TOML parses slowly, so of the shipped files only the rows that mention the wanted name are parsed: there every row
starts with its `[id]` at the beginning of a line. A user's files are parsed whole, so that every mistake is found.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerocalc.errors import FileError, shown, unknown_name
from zerocalc.presets.rows import Preset, normal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

KINDS = ("models", "gpus", "nodes", "optimizers", "precisions", "links", "overheads")
SINGULAR = {
    "models": "model", "gpus": "GPU", "nodes": "node", "optimizers": "optimizer", "precisions": "precision",
    "links": "link", "overheads": "overhead",
}  # fmt: skip
LARGEST_FILE_BYTES = 2**20
_HERE = Path(__file__).parents[1]
SHIPPED = _HERE / "_presets" if (_HERE / "_presets").is_dir() else _HERE.parent / "presets"
_HEADER = re.compile(r'^\[("?)([^\[\]"\n]+)\1\][ \t]*(?:#.*)?$', re.MULTILINE)


def folders(directory: Path | str | None) -> list[Path]:
    """Where to look, in order. Raises FileError when the user's directory is none."""
    if directory is None:
        return [SHIPPED]
    folder = Path(directory)
    if not answers(folder, Path.is_dir):
        problem = "is a file, not a directory" if answers(folder, Path.exists) else "does not exist"
        raise FileError(
            f"presets directory {str(folder)!r} {problem}", hint="it holds gpus/*.toml, models/*.toml, ..."
        )
    return [folder, SHIPPED]


def _files(folder: Path, kind: str) -> list[Path]:
    """List the TOML files of a kind: `<kind>.toml`, then those in `<kind>/`."""
    if kind not in KINDS:
        raise unknown_name("kind of preset", kind, list(KINDS), hint=f"one of {', '.join(KINDS)}")
    single, many = folder / f"{kind}.toml", folder / kind
    if answers(many, Path.exists) and not many.is_dir():
        raise FileError(
            f"{many} is a file, not a directory", hint=f"put {kind}.toml, or files {kind}/*.toml, there"
        )
    # A link that leads nowhere is not passed over.
    named = answers(single, Path.exists) or single.is_symlink()
    return ([single] if named else []) + sorted(many.glob("*.toml"))


def answers(path: Path, test: Callable[[Path], bool]) -> bool:
    """Ask the file system about a path; a name too long or a forbidden folder is a FileError."""
    try:
        return test(path)
    except OSError as error:
        raise FileError(f"{shown(str(path))}: cannot be read ({error.strerror})") from error


def read_file(path: Path) -> str:
    """Read a text file of bounded size. Raises FileError when that fails or it is not UTF-8."""
    try:
        if path.is_fifo():
            raise FileError(f"{path}: not a regular file")
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE_BYTES + 1)
        if len(data) > LARGEST_FILE_BYTES:
            raise FileError(f"{path}: larger than {LARGEST_FILE_BYTES} bytes, too large for presets")
        return data.decode("utf-8")
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: not UTF-8 text (byte {error.start})") from error


def _parse(path: Path, text: str) -> dict[str, dict[str, Any]]:
    """Parse TOML into rows. Raises FileError when it is no TOML or holds anything but tables."""
    import tomllib

    try:
        tables = tomllib.loads(text, parse_float=Decimal)
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise FileError(f"{path}: not valid TOML ({error})") from error
    for row_id, table in tables.items():
        if not isinstance(table, dict):
            raise FileError(f"{path}: {row_id}: must be a table, a row like [{row_id}] (got {shown(table)})")
    return tables


def _split(text: str) -> Iterator[tuple[str, str]]:
    """Yield each row's id and text from a shipped file, where every header starts a line."""
    headers = list(_HEADER.finditer(text))
    ends = [header.start() for header in headers[1:]] + [len(text)]
    for header, end in zip(headers, ends, strict=bool(headers)):
        yield header[2], text[header.start() : end]


def _mentioning(text: str, word: str) -> str:
    """Return the rows of a shipped file that have `word` as their id or as a quoted string."""
    if word not in text.lower():
        return ""
    rows = _split(text)
    return "\n".join(row for row_id, row in rows if row_id.lower() == word or f'"{word}"' in row.lower())


def _presets(kind: str, folder: Path, word: str | None = None) -> Iterator[Preset]:
    """Yield a folder's rows of a kind; with `word`, of the shipped files only rows that mention it."""
    seen = set()
    for path in _files(folder, kind):
        text = read_file(path)
        if word is not None and folder == SHIPPED:
            text = _mentioning(text, word)
        for row_id, table in _parse(path, text).items() if text else ():
            seen.add(row_id)
            yield Preset(kind, row_id, table, path, asked=word or "")
    if kind == "models" and folder != SHIPPED:
        bare = [path for path in sorted((folder / kind).glob("*.json")) if path.stem not in seen]
        yield from (Preset(kind, path.stem, {}, path, asked=word or "") for path in bare)


def mentions(kind: str, folder: Path, word: str) -> Iterable[Preset]:
    """A folder's rows that may answer to a word."""
    return _shipped(kind, word) if folder == SHIPPED else _presets(kind, folder, word)


@lru_cache(maxsize=1024)
def _shipped(kind: str, word: str) -> tuple[Preset, ...]:
    """Return the shipped rows that mention `word`, once per process: a check asks for the same few a thousand times."""
    return tuple(_presets(kind, SHIPPED, word))


def preset_ids(kind: str, *, directory: Path | str | None = None) -> list[str]:
    """List the ids of a kind in file order, parsing no shipped file: what completion needs."""
    user = [preset.id for folder in folders(directory)[:-1] for preset in _presets(kind, folder)]
    shipped = [row_id for path in _files(SHIPPED, kind) for row_id, _ in _split(read_file(path))]
    return list(dict.fromkeys(user + shipped))


def merged(kind: str, directory: Path | str | None, word: str | None = None) -> list[Preset]:
    """Return the rows of all folders; the first of an id hides the later ones."""
    found: dict[str, Preset] = {}
    for folder in folders(directory):
        for preset in _presets(kind, folder, word):
            found.setdefault(normal(preset.id), preset)
    return list(found.values())
