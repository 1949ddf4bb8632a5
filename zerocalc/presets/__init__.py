"""Find, list and load presets: models, gpus, nodes, optimizers, precisions, links, overheads.

A kind is one file `<kind>.toml` or a folder `<kind>/` of TOML files, each a table of rows `[id]`. A row answers to
its id, to its `aliases`, and (saying so in `assumption`) to names in `default_for` that other parts share; names in
`ambiguous` are refused with the choices. A user's folder has the same layout and is searched first.
"""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from zerocalc.errors import FileError, UnknownNameError, unknown_name
from zerocalc.presets.hardware import Gpu, Node, read_gpu, read_node
from zerocalc.presets.rows import Alternative, Figure, Preset, normal
from zerocalc.presets.store import KINDS, SINGULAR, answers, folders, mentions, merged, preset_ids, read_file
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
    from collections.abc import Callable

    from zerocalc.presets.links import Link, LinkRates
    from zerocalc.presets.overheads import Overhead, Reserve

__all__ = [
    "KINDS", "Alternative", "Figure", "Gpu", "ModelPreset", "Node", "Optimizer", "OptimizerState", "Precision",
    "Preset", "WeightCopy", "find", "list_presets", "load_gpu", "load_link", "load_link_rates", "load_links",
    "load_model", "load_node", "load_optimizer", "load_overhead", "load_precision", "load_reserve", "normal",
    "optimizer_bytes_per_param", "preset_ids", "resolve_dtype", "show",
]  # fmt: skip

T = TypeVar("T")


def find(kind: str, name: str, *, directory: Path | str | None = None) -> Preset:
    """Find the row of `kind` that answers to `name`, in the user's directory first, then among the shipped ones.

    Raises UnknownNameError with near names, or listing the choices when the name fits several parts.
    """
    wanted = normal(name)
    for folder in folders(directory):
        hits = [preset for preset in mentions(kind, folder, wanted) if wanted in preset.names]
        if hits:
            return _choose(kind, wanted, hits)
    known = [known for preset in list_presets(kind, directory=directory) for known in preset.names]
    raise unknown_name(SINGULAR[kind], name, known, hint=f"zerocalc presets list {kind}")


def list_presets(kind: str, *, directory: Path | str | None = None) -> list[Preset]:
    """Every row of a kind in file order, the user's first; a user's row hides the shipped one of the same id."""
    return merged(kind, directory)


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

    rows = merged("links", directory, link_kind)
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
    for folder in folders(directory):
        for preset in mentions("links", folder, gpu):
            if preset.table.get("kind") == "rates" and gpu in preset.listed("gpus"):
                return read_rates(preset, default)
    return read_rates(default)


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
    if not answers(path, Path.exists):
        return None
    import json

    try:
        config = json.loads(read_file(path))
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
