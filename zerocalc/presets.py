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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerocalc.errors import FileError, UnknownNameError, unknown_name
from zerocalc.preset_hardware import Gpu, Node, read_gpu, read_node
from zerocalc.preset_rows import Alternative, Figure, Preset
from zerocalc.preset_training import (
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
    from collections.abc import Iterator

__all__ = [
    "KINDS", "Alternative", "Figure", "Gpu", "ModelPreset", "Node", "Optimizer", "OptimizerState", "Precision",
    "Preset", "WeightCopy", "find", "list_presets", "load_gpu", "load_model", "load_node", "load_optimizer",
    "load_precision", "optimizer_bytes_per_param", "preset_ids", "resolve_dtype", "show",
]  # fmt: skip

KINDS = ("models", "gpus", "nodes", "optimizers", "precisions", "links", "overheads")
SINGULAR = {
    "models": "model", "gpus": "GPU", "nodes": "node", "optimizers": "optimizer", "precisions": "precision",
    "links": "link", "overheads": "overhead",
}  # fmt: skip
LARGEST_FILE_BYTES = 4 * 2**20

_HERE = Path(__file__).parent
SHIPPED = _HERE / "_presets" if (_HERE / "_presets").is_dir() else _HERE.parent / "presets"
_HEADER = re.compile(r'^\[("?)([^\[\]"\n]+)\1\][ \t]*(?:#.*)?$', re.MULTILINE)


def normal(name: str) -> str:
    """Return the form in which names are compared: lower case, `-` for blanks and underscores."""
    return re.sub(r"[\s_]+", "-", name.strip().lower())


def find(kind: str, name: str, *, directory: Path | str | None = None) -> Preset:
    """Find the row of `kind` that answers to `name`, in the user's directory first, then among the shipped ones.

    Raises UnknownNameError with near names, or listing the choices when the name fits several parts.
    """
    wanted = normal(name)
    for folder in _folders(directory):
        hits = [hit for path in _files(folder, _checked(kind)) for hit in _answering(kind, path, wanted)]
        if hits:
            return _choose(kind, wanted, hits)
    raise unknown_name(
        SINGULAR[kind], name, _known_names(kind, directory), hint=f"zerocalc presets list {kind}"
    )


def list_presets(kind: str, *, directory: Path | str | None = None) -> list[Preset]:
    """Every row of a kind in file order, the user's first; a user's row hides the shipped one of the same id."""
    found: dict[str, Preset] = {}
    for folder in _folders(directory):
        for path in _files(folder, _checked(kind)):
            for row_id, table in _parse(path, _read(path)).items():
                found.setdefault(normal(row_id), Preset(kind, row_id, table, path))
    return list(found.values())


def preset_ids(kind: str, *, directory: Path | str | None = None) -> list[str]:
    """List the ids of a kind in file order, without parsing the shipped files: what completion needs."""
    ids: dict[str, None] = {}
    for folder in _folders(directory):
        for path in _files(folder, _checked(kind)):
            ids.update(dict.fromkeys(row_id for row_id, _ in _rows(path)))
    return list(ids)


def show(kind: str, name: str, *, directory: Path | str | None = None) -> dict[str, Any]:
    """Return a row as plain data for display or JSON: its id, file and every key as written; a model's config included."""
    preset = find(kind, name, directory=directory)
    table = {"id": preset.id, "file": preset.path.name, **_plain(preset.table)}
    config = _config(preset) if kind == "models" else None
    return {**table, "config": config} if config else table


def load_gpu(name: str, *, directory: Path | str | None = None) -> Gpu:
    """Load a GPU by id or alias."""
    return read_gpu(find("gpus", name, directory=directory))


def load_node(name: str, *, directory: Path | str | None = None) -> Node:
    """Load a node by id or alias; `load_gpu(node.gpu)` gives its accelerator."""
    return read_node(find("nodes", name, directory=directory))


def load_model(name: str, *, directory: Path | str | None = None) -> ModelPreset:
    """Load a published model by id, alias or Hugging Face id, with its config."""
    preset = find("models", name, directory=directory)
    return read_model(preset, _config(preset))


def load_optimizer(name: str, *, directory: Path | str | None = None) -> Optimizer:
    """Load an optimizer by id or alias."""
    return read_optimizer(find("optimizers", name, directory=directory))


def load_precision(name: str, *, directory: Path | str | None = None) -> Precision:
    """Load a precision by id or alias."""
    return read_precision(find("precisions", name, directory=directory))


def _checked(kind: str) -> str:
    """Refuse kinds that do not exist."""
    if kind not in KINDS:
        raise unknown_name("kind of preset", kind, list(KINDS), hint=f"one of {', '.join(KINDS)}")
    return kind


def _folders(directory: Path | str | None) -> list[Path]:
    """Where to look, in order. Raises FileError when the user's directory is none."""
    if directory is None:
        return [SHIPPED]
    folder = Path(directory)
    if not folder.is_dir():
        problem = "is a file, not a directory" if folder.exists() else "does not exist"
        raise FileError(
            f"presets directory {str(folder)!r} {problem}", hint="it holds gpus/*.toml, models/*.toml, ..."
        )
    return [folder, SHIPPED]


def _files(folder: Path, kind: str) -> list[Path]:
    """List the TOML files of a kind: `<kind>.toml`, then those in `<kind>/`."""
    single, many = folder / f"{kind}.toml", folder / kind
    if many.exists() and not many.is_dir():
        raise FileError(
            f"{many} is a file, not a directory", hint=f"put {kind}.toml, or files {kind}/*.toml, there"
        )
    return ([single] if single.exists() else []) + sorted(many.glob("*.toml"))


def _read(path: Path) -> str:
    """Read a text file of bounded size. Raises FileError when that fails or it is not UTF-8."""
    try:
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
            raise FileError(f"{path}: {row_id}: must be a table, a row like [{row_id}] (got {table!r})")
    return tables


def _rows(path: Path) -> Iterator[tuple[str, str]]:
    """Each row's id and text, split at the headers; a user's file is parsed whole once, to find its mistakes."""
    text = _read(path)
    if not path.is_relative_to(SHIPPED):
        yield from ((row_id, "") for row_id in _parse(path, text))
        return
    headers = list(_HEADER.finditer(text))
    ends = [header.start() for header in headers[1:]] + [len(text)]
    for header, end in zip(headers, ends, strict=bool(headers)):
        yield header[2], text[header.start() : end]


def _answering(kind: str, path: Path, wanted: str) -> Iterator[Preset]:
    """Yield the rows of a file that answer to a name; of shipped files only rows that mention it are parsed."""
    quoted = f'"{wanted}"'
    for row_id, text in _rows(path):
        if text and normal(row_id) != wanted and quoted not in text.lower():
            continue
        table = _parse(path, text or _read(path))[row_id]
        preset = Preset(kind, row_id, table, path, asked=wanted)
        if normal(row_id) == wanted or wanted in _names(table):
            yield preset


def _names(table: dict[str, Any], *keys: str) -> list[str]:
    """List the further names a row answers to, in normal form."""
    listed = [table.get(key) for key in keys or ("aliases", "default_for", "ambiguous")]
    names = [name for names in listed if isinstance(names, list) for name in names if isinstance(name, str)]
    hf_id = table.get("hf_id")
    return [normal(name) for name in (*names, hf_id) if isinstance(name, str)]


def _choose(kind: str, wanted: str, hits: list[Preset]) -> Preset:
    """Pick the one row meant: an id beats aliases; several rows are a choice that only the user can make."""
    exact = [hit for hit in hits if normal(hit.id) == wanted]
    if exact:
        return exact[0]
    if len(hits) == 1 and wanted not in _names(hits[0].table, "ambiguous"):
        return hits[0]
    choices = " or ".join(f"{hit.id!r}" for hit in hits)
    raise UnknownNameError(
        f"{SINGULAR[kind]} {wanted!r} could be {choices}, which differ in memory",
        hint="name the one you mean",
    )


def _known_names(kind: str, directory: Path | str | None) -> list[str]:
    """Every name that some row answers to, ids first: the pool for suggestions."""
    presets = list_presets(kind, directory=directory)
    return [preset.id for preset in presets] + [name for preset in presets for name in _names(preset.table)]


def _config(preset: Preset) -> dict[str, Any] | None:
    """Read the published config beside a model's row, or None when there is none."""
    path = preset.path.parent / f"{preset.id}.json"
    if not path.exists():
        return None
    import json

    try:
        config = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(config, dict):
        raise FileError(f"{path}: must hold a JSON object, a Hugging Face config")
    return config


def _plain(value: Any) -> Any:  # noqa: ANN401
    """Return a TOML value as JSON can hold it: Decimals become numbers."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value
