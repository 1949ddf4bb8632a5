"""Find, list and load presets: models, gpus, nodes, optimizers, precisions, links, overheads.

A kind is one file `<kind>.toml` or a folder `<kind>/` of TOML files, each a table of rows `[id]`. A row answers to
its id, to its `aliases`, and (saying so in `assumption`) to names in `default_for` that other parts share; names in
`ambiguous` are refused with the choices. A user's folder has the same layout and is searched first.

TOML parses slowly, so of the shipped files only the rows that mention the wanted name are parsed: there every row
starts with its `[id]` at the beginning of a line. A user's files are parsed whole, so that every mistake is found.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from zerocalc.errors import FileError, UnknownNameError, shown, unknown_name
from zerocalc.presets.hardware import Gpu, Node, read_gpu, read_node
from zerocalc.presets.rows import Alternative, Figure, Preset, normal
from zerocalc.presets.training import (
    ModelPreset,
    Optimizer,
    OptimizerState,
    Precision,
    WeightCopy,
    optimizer_bytes_per_param,
    read_model,
    read_optimizer,
    read_precision,
    resolve_dtype,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from zerocalc.presets.links import Link, LinkRates
    from zerocalc.presets.overheads import Overhead, Reserve

__all__ = [
    "KINDS", "Alternative", "Figure", "Gpu", "ModelPreset", "Node", "Optimizer", "OptimizerState", "Precision",
    "Preset", "WeightCopy", "find", "list_presets", "load_gpu", "load_link", "load_link_rates", "load_links",
    "load_model", "load_node", "load_optimizer", "load_overhead", "load_precision", "load_reserve", "normal",
    "optimizer_bytes_per_param", "preset_ids", "resolve_dtype", "show",
]  # fmt: skip

KINDS = ("models", "gpus", "nodes", "optimizers", "precisions", "links", "overheads")
SINGULAR = {
    "models": "model", "gpus": "GPU", "nodes": "node", "optimizers": "optimizer", "precisions": "precision",
    "links": "link", "overheads": "overhead",
}  # fmt: skip
LARGEST_FILE_BYTES = 2**20

T = TypeVar("T")
_HERE = Path(__file__).parents[1]
SHIPPED = _HERE / "_presets" if (_HERE / "_presets").is_dir() else _HERE.parent / "presets"
_HEADER = re.compile(r'^\[("?)([^\[\]"\n]+)\1\][ \t]*(?:#.*)?$', re.MULTILINE)


def find(kind: str, name: str, *, directory: Path | str | None = None) -> Preset:
    """Find the row of `kind` that answers to `name`, in the user's directory first, then among the shipped ones.

    Raises UnknownNameError with near names, or listing the choices when the name fits several parts.
    """
    wanted = normal(name)
    for folder in _folders(directory):
        hits = [preset for preset in _mentions(kind, folder, wanted) if wanted in preset.names]
        if hits:
            return _choose(kind, wanted, hits)
    known = [known for preset in list_presets(kind, directory=directory) for known in preset.names]
    raise unknown_name(SINGULAR[kind], name, known, hint=f"zerocalc presets list {kind}")


def list_presets(kind: str, *, directory: Path | str | None = None) -> list[Preset]:
    """Every row of a kind in file order, the user's first; a user's row hides the shipped one of the same id."""
    return _merged(kind, directory)


def preset_ids(kind: str, *, directory: Path | str | None = None) -> list[str]:
    """List the ids of a kind in file order, parsing no shipped file: what completion needs."""
    user = [preset.id for folder in _folders(directory)[:-1] for preset in _presets(kind, folder)]
    shipped = [row_id for path in _files(SHIPPED, kind) for row_id, _ in _split(_read(path))]
    return list(dict.fromkeys(user + shipped))


def show(kind: str, name: str, *, directory: Path | str | None = None) -> dict[str, Any]:
    """Return a row as plain data for display or JSON: its id, file and every key as written; a model's config included."""
    preset = find(kind, name, directory=directory)
    table = {"id": preset.id, "file": preset.path.name, **_plain(preset.table)}
    config = _config(preset) if kind == "models" else None
    return {**table, "config": config} if config else table


def _load(kind: str, name: str, directory: Path | str | None, read: Callable[[Preset], T]) -> T:
    """Find a row and read it; what is shipped is read once per process."""
    if directory is None:
        return cast("T", _load_shipped(kind, name, read))
    return read(find(kind, name, directory=directory))


@lru_cache(maxsize=1024)
def _load_shipped(kind: str, name: str, read: Callable[[Preset], object]) -> object:
    return read(find(kind, name))


def load_gpu(name: str, *, directory: Path | str | None = None) -> Gpu:
    """Load a GPU by id or alias."""
    return _load("gpus", name, directory, read_gpu)


def load_node(name: str, *, directory: Path | str | None = None) -> Node:
    """Load a node by id or alias; `load_gpu(node.gpu)` gives its accelerator."""
    return _load("nodes", name, directory, read_node)


def load_model(name: str, *, directory: Path | str | None = None) -> ModelPreset:
    """Load a published model by id, alias or Hugging Face id, with its config."""
    preset = find("models", name, directory=directory)
    return read_model(preset, _config(preset))


def load_optimizer(name: str, *, directory: Path | str | None = None) -> Optimizer:
    """Load an optimizer by id or alias."""
    return _load("optimizers", name, directory, read_optimizer)


def load_precision(name: str, *, directory: Path | str | None = None) -> Precision:
    """Load a precision by id or alias."""
    return _load("precisions", name, directory, read_precision)


def load_reserve(name: str = "default", *, directory: Path | str | None = None) -> Reserve:
    """Load a named reserve, such as `gpu.reserve`, from the overheads."""
    from zerocalc.presets.overheads import read_reserve

    return _load("overheads", name, directory, read_reserve)


def load_overhead(name: str, *, directory: Path | str | None = None) -> Overhead:
    """Load one measured overhead by id."""
    from zerocalc.presets.overheads import read_overhead

    return read_overhead(find("overheads", name, directory=directory))


def load_link(name: str, *, directory: Path | str | None = None) -> Link:
    """Load one measured link by id."""
    from zerocalc.presets.links import read_link

    return read_link(find("links", name, directory=directory))


def load_links(link_kind: str | None = None, *, directory: Path | str | None = None) -> list[Link]:
    """Load all measurements, or those of one kind: `intra-node`, `host link`, `nvme`, `cpu adam`, ..."""
    from zerocalc.presets.links import read_link

    rows = _merged("links", directory, link_kind)
    links = [read_link(preset) for preset in rows if preset.table.get("kind") != "rates"]
    return [link for link in links if link_kind in (None, link.kind)]


def load_link_rates(gpu: str, *, directory: Path | str | None = None) -> LinkRates:
    """Load the rates to use for a GPU preset's id; unknown GPUs get the figures that hold for any hardware."""
    return _shipped_rates(gpu) if directory is None else _rates(gpu, directory)


@lru_cache(maxsize=256)
def _shipped_rates(gpu: str) -> LinkRates:
    return _rates(gpu, None)


def _rates(gpu: str, directory: Path | str | None) -> LinkRates:
    from zerocalc.presets.links import read_rates

    default = find("links", "rates-default", directory=directory)
    for folder in _folders(directory):
        for preset in _mentions("links", folder, gpu):
            if preset.table.get("kind") == "rates" and gpu in preset.listed("gpus"):
                return read_rates(preset, default)
    return read_rates(default)


def _folders(directory: Path | str | None) -> list[Path]:
    """Where to look, in order. Raises FileError when the user's directory is none."""
    if directory is None:
        return [SHIPPED]
    folder = Path(directory)
    if not _is(folder, Path.is_dir):
        problem = "is a file, not a directory" if _is(folder, Path.exists) else "does not exist"
        raise FileError(
            f"presets directory {str(folder)!r} {problem}", hint="it holds gpus/*.toml, models/*.toml, ..."
        )
    return [folder, SHIPPED]


def _files(folder: Path, kind: str) -> list[Path]:
    """List the TOML files of a kind: `<kind>.toml`, then those in `<kind>/`."""
    if kind not in KINDS:
        raise unknown_name("kind of preset", kind, list(KINDS), hint=f"one of {', '.join(KINDS)}")
    single, many = folder / f"{kind}.toml", folder / kind
    if _is(many, Path.exists) and not many.is_dir():
        raise FileError(
            f"{many} is a file, not a directory", hint=f"put {kind}.toml, or files {kind}/*.toml, there"
        )
    named = _is(single, Path.exists) or single.is_symlink()  # A link that leads nowhere is not passed over.
    return ([single] if named else []) + sorted(many.glob("*.toml"))


def _is(path: Path, test: Callable[[Path], bool]) -> bool:
    """Ask the file system about a path; a name too long or a forbidden folder is a FileError."""
    try:
        return test(path)
    except OSError as error:
        raise FileError(f"{shown(str(path))}: cannot be read ({error.strerror})") from error


def _read(path: Path) -> str:
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
        text = _read(path)
        if word is not None and folder == SHIPPED:
            text = _mentioning(text, word)
        for row_id, table in _parse(path, text).items() if text else ():
            seen.add(row_id)
            yield Preset(kind, row_id, table, path, asked=word or "")
    if kind == "models" and folder != SHIPPED:
        bare = [path for path in sorted((folder / kind).glob("*.json")) if path.stem not in seen]
        yield from (Preset(kind, path.stem, {}, path, asked=word or "") for path in bare)


def _mentions(kind: str, folder: Path, word: str) -> Iterable[Preset]:
    """A folder's rows that may answer to a word."""
    return _shipped(kind, word) if folder == SHIPPED else _presets(kind, folder, word)


@lru_cache(maxsize=1024)
def _shipped(kind: str, word: str) -> tuple[Preset, ...]:
    """Return the shipped rows that mention `word`, once per process: a check asks for the same few a thousand times."""
    return tuple(_presets(kind, SHIPPED, word))


def _merged(kind: str, directory: Path | str | None, word: str | None = None) -> list[Preset]:
    """Return the rows of all folders; the first of an id hides the later ones."""
    found: dict[str, Preset] = {}
    for folder in _folders(directory):
        for preset in _presets(kind, folder, word):
            found.setdefault(normal(preset.id), preset)
    return list(found.values())


def _choose(kind: str, wanted: str, hits: list[Preset]) -> Preset:
    """Pick the one row meant: an id beats aliases; several rows are a choice that only the user can make."""
    exact = [hit for hit in hits if normal(hit.id) == wanted]
    if exact:
        return exact[0]
    if len(hits) == 1:
        return hits[0]
    choices = " or ".join(f"{hit.id!r}" + (f" ({hit.title})" if hit.title != hit.id else "") for hit in hits)
    raise UnknownNameError(f"{SINGULAR[kind]} {wanted!r} could be {choices}", hint="name the one you mean")


def _config(preset: Preset) -> dict[str, Any] | None:
    """Read the published config beside a model's row, or None when there is none."""
    path = preset.path.parent / f"{preset.id}.json"
    if not _is(path, Path.exists):
        return None
    import json

    try:
        config = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(config, dict):
        raise FileError(f"{path}: must hold a JSON object, a Hugging Face config")
    return config


def _plain(value: Any) -> Any:
    """Return a TOML value as JSON can hold it: Decimals become numbers."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value
