"""Read the layout of any model from safetensors headers; the weights are never read.

A file is 8 bytes of little-endian header length, that many bytes of JSON, then the data. A folder is read through
its `model.safetensors.index.json`, or its only .safetensors file.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

from zerocalc.errors import FileError
from zerocalc.layout import Architecture, Tie
from zerocalc.readers.grouping import Stored, grouped_layout
from zerocalc.readers.huggingface import CONFIG_NAME
from zerocalc.readers.paths import what_is_wrong_with
from zerocalc.readers.text import parse_json, read_text
from zerocalc.units import MAX_PARAMS, ceil_div

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_HEADER_BYTES = 100_000_000
"""The bound of the safetensors library itself."""
INDEX_SUFFIX = ".safetensors.index.json"
INDEX_NAME = f"model{INDEX_SUFFIX}"
SINGLE_NAME = "model.safetensors"
MAX_DIMENSIONS = 64
MOST_NOTES = 8
"""Tensors that share bytes are named up to so many pairs."""
_LENGTH_BYTES = 8

DTYPE_BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "C64": 64,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
    "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a header and where its bytes lie."""

    tensor: Stored
    begin: int
    end: int


def read_layout(path: str | Path) -> Architecture:
    """Read the layout of a .safetensors file, of an index, or of a folder with either.

    Names with a running number become the layers of a stack, equal ones merged; names that share bytes are ties;
    rotary tables, router corrections, scales and whole numbers are buffers, not parameters.

    Raises FileError for a missing shard, a header that lies about its length, offsets outside the data, and sizes
    that do not fit their shape.
    """
    root = Path(path)
    folder = root if root.is_dir() else root.parent
    headers = [_read_header(file) for file in _files(root)]
    return layout_of(headers, str(path), config=folder / CONFIG_NAME)


def layout_of(headers: Sequence[Sequence[Entry]], label: str, *, config: Path | None) -> Architecture:
    """Group the tensors of a model's headers, one a file; a config beside them may declare ties.

    Raises FileError for no tensors, a name that two files hold, and more parameters than are supported.
    """
    tensors = [entry.tensor for header in headers for entry in header]
    if not tensors:
        raise FileError(f"{label}: holds no tensors")
    _refuse_repeated(tensors, label)
    shared = [_shared_storage(header) for header in headers]
    ties = tuple(tie for found, _ in shared for tie in found) + _ties_of_config(config, tensors)
    layout, notes = grouped_layout(tensors, ties)
    if layout.num_params > MAX_PARAMS:
        raise FileError(f"{label}: more than {MAX_PARAMS:,} parameters")
    overlaps = tuple(note for _, found in shared for note in found)
    return Architecture("safetensors", layout, None, (*notes, *overlaps))


def _files(path: Path) -> list[Path]:
    """Find the files that hold a model's tensors."""
    if path.is_file():
        return _shards(path) if path.name.endswith(".json") else [path]
    if not path.is_dir():
        raise FileError(f"{path}: {what_is_wrong_with(path)}")
    if (path / INDEX_NAME).is_file():
        return _shards(path / INDEX_NAME)
    if (path / SINGLE_NAME).is_file():
        return [path / SINGLE_NAME]
    found = sorted(file for file in path.iterdir() if file.suffix == ".safetensors")
    if len(found) == 1:
        return found
    many = f"has {len(found)} .safetensors files and no {INDEX_NAME}" if found else "has no .safetensors file"
    raise FileError(f"{path}: the folder {many}", hint=f"give one file, or a folder with {INDEX_NAME}")


def _shards(index: Path) -> list[Path]:
    """Read which files an index lists; all must lie beside it."""
    value = parse_json(read_text(index, limit=MAX_HEADER_BYTES), str(index))
    names = value.get("weight_map") if isinstance(value, dict) else None
    if not isinstance(names, dict) or not names or not all(isinstance(name, str) for name in names.values()):
        raise FileError(f"{index}: has no weight_map of tensor names to file names")
    shards = sorted(set(names.values()))
    for name in shards:
        if name in {"", ".", ".."} or "/" in name or "\\" in name or "\0" in name:
            raise FileError(f"{index}: weight_map leads outside its folder ({name[:60]!r})")
    if missing := [name for name in shards if not (index.parent / name).is_file()]:
        raise FileError(
            f"{index}: {len(missing)} of {len(shards)} shards are missing, the first is {missing[0][:100]}",
            hint="download the rest; only their headers are read",
        )
    return [index.parent / name for name in shards]


def _read_header(file: Path) -> list[Entry]:
    """Read one file's header and check it against the file's size."""
    try:
        if not file.is_file():
            raise FileError(f"{file}: {what_is_wrong_with(file)}")
        with file.open("rb") as stream:
            size = file.stat().st_size
            length = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
            if size < _LENGTH_BYTES:
                raise FileError(f"{file}: too short for a safetensors file ({size} bytes)")
            if length > MAX_HEADER_BYTES or length > size - _LENGTH_BYTES:
                limit = min(MAX_HEADER_BYTES, size - _LENGTH_BYTES)
                raise FileError(
                    f"{file}: claims a header of {length:,} bytes, at most {limit:,} are possible",
                    hint="is it a safetensors file, and is it complete?",
                )
            raw = stream.read(length)
    except OSError as fault:
        raise FileError(f"{file}: cannot be read: {fault.strerror}") from None
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise FileError(f"{file}: the header is no UTF-8 text") from None
    value = parse_json(text, f"{file} header")
    if not isinstance(value, dict):
        raise FileError(f"{file}: the header is no JSON object")
    space = size - _LENGTH_BYTES - length
    return [entry_of(str(file), name, item, space) for name, item in value.items() if name != "__metadata__"]


def entry_of(file: str, name: str, item: object, space: int) -> Entry:
    """Check one tensor: known dtype, sizes that are whole numbers, bytes that lie in the file and fit the shape."""
    label = f"{file}: tensor {name[:100]!r}"
    if not isinstance(item, dict):
        raise FileError(f"{label} is no object of dtype, shape and data_offsets")
    dtype, shape, offsets = item.get("dtype"), item.get("shape"), item.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise FileError(
            f"{label} has the unknown dtype {str(dtype)[:20]!r}", hint=f"known: {', '.join(DTYPE_BITS)}"
        )
    if not _whole_numbers(shape) or not _whole_numbers(offsets) or len(offsets) != 2:
        raise FileError(f"{label} needs a shape and two data_offsets of whole numbers from 0")
    begin, end = offsets
    if len(shape) > MAX_DIMENSIONS or max(shape, default=0) > MAX_PARAMS:
        raise FileError(
            f"{label} has a shape beyond {MAX_DIMENSIONS} dimensions of at most {MAX_PARAMS:,} each"
        )
    if not begin <= end <= space:
        raise FileError(f"{label} lies at bytes {begin:,} to {end:,}, outside the {space:,} bytes of data")
    if end - begin != ceil_div(prod(shape) * DTYPE_BITS[dtype], 8):
        raise FileError(
            f"{label} has {end - begin:,} bytes, which do not fit {dtype} of shape {str(shape)[:100]}"
        )
    return Entry(Stored(name, tuple(shape), dtype), begin, end)


def _whole_numbers(value: object) -> TypeGuard[list[int]]:
    """Tell a list of whole numbers from 0."""
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _refuse_repeated(tensors: Sequence[Stored], label: str) -> None:
    """Refuse a name that two shards hold."""
    seen: set[str] = set()
    for tensor in tensors:
        if tensor.name in seen:
            raise FileError(f"{label}: two shards hold the tensor {tensor.name[:100]!r}")
        seen.add(tensor.name)


def _shared_storage(entries: Sequence[Entry]) -> tuple[list[Tie], list[str]]:
    """Find names for the same bytes, which are ties, and ranges that overlap in part, which are only named."""
    ties: list[Tie] = []
    notes: list[str] = []
    firsts: list[Entry] = []
    for entry in sorted((e for e in entries if e.end > e.begin), key=lambda e: (e.begin, e.end)):
        if firsts and (firsts[-1].begin, firsts[-1].end) == (entry.begin, entry.end):
            ties.append(Tie(entry.tensor.name, firsts[-1].tensor.name))
        else:
            firsts.append(entry)
    widest = firsts[0] if firsts else None
    for entry in firsts[1:]:
        assert widest is not None
        if entry.begin < widest.end:
            notes.append(
                f"{widest.tensor.name} and {entry.tensor.name} share part of their bytes; both are counted"
            )
        widest = max(widest, entry, key=lambda each: each.end)
    return ties, _few(notes)


def _few(notes: list[str]) -> list[str]:
    """The first of many notes, and how many more there are."""
    more = len(notes) - MOST_NOTES
    return [*notes[:MOST_NOTES], f"{more:,} more pairs of tensors share bytes"] if more > 0 else notes


def _ties_of_config(config: Path | None, tensors: Sequence[Stored]) -> tuple[Tie, ...]:
    """Take the ties that a config.json beside the weights declares, where both names are stored alike."""
    from zerocalc.architectures import architecture
    from zerocalc.errors import ZerocalcError
    from zerocalc.readers.huggingface import read_config

    if config is None or not config.is_file():
        return ()
    try:
        declared = architecture(read_config(config)).layout.ties
    except ZerocalcError:
        return ()
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    return tuple(tie for tie in declared if tie.name in shapes and shapes[tie.name] == shapes.get(tie.target))
