"""A box of a grid in numpy arrays: which record answers where, and the columns of the rows that are wanted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from zerocalc.sweeps.replay import Replay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from zerocalc.sweeps.record import Record, Recorder

SPARSE = 8
"""Where less than one row in so many is wanted, its columns are computed for it alone."""


class InexactError(Exception):
    """64 bits do not hold what is computed on the way somewhere in the grid."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of a box in which one record is the answer."""

    record: Record
    replay: Replay
    values: Mapping[str, Any]
    """Its axes, each along its own dimension."""
    shape: tuple[int, ...]
    where: Any
    """Which of its points; None for all."""
    offset: tuple[int, ...]
    """Where in the box it starts."""

    def column(self, name: str) -> Any:
        """One column, broadcastable to the shape; a label or None is the same everywhere."""
        if name in self.values:
            return self.values[name]
        found = self.record.columns[name]
        return found if isinstance(found, str) or found is None else self.replay.number(found)


def pieces(recorder: Recorder, values: Mapping[str, Any]) -> Iterator[Piece]:
    """Cover a box: its axes' values in order, one array per word, each with its own dimension.

    Records that are known come first; where none holds, the job is traced at the first point that is left.
    """
    opened = {word: _along(array, at, len(values)) for at, (word, array) in enumerate(values.items())}
    shape = tuple(len(array) for array in values.values())
    todo: Any = None
    known = list(recorder.records)
    while known or todo is None or todo.any():
        region = _bounding(todo, shape)
        axes = {word: array[_only(at, region)] for at, (word, array) in enumerate(opened.items())}
        fresh = not known
        record = recorder.record_at(_first(todo, values)) if fresh else known.pop(0)
        if not record.safe:
            raise InexactError
        held = record.holds(Replay(record.tape, axes))
        if not np.any(held):
            assert not fresh, "a record holds where it was made"
            continue
        piece, done = _cut(record, axes, held, todo, region)
        if piece is not None:
            yield piece
        if done is None:
            return
        if todo is None:
            todo = np.ones(shape, dtype=bool)
        todo[region] &= ~done


def _along(array: Any, at: int, dimensions: int) -> Any:
    return np.asarray(array, dtype=np.int64).reshape(
        [-1 if index == at else 1 for index in range(dimensions)]
    )


def _only(at: int, region: tuple[slice, ...]) -> tuple[slice, ...]:
    return tuple(part if index == at else slice(None) for index, part in enumerate(region))


def _first(todo: Any, values: Mapping[str, Any]) -> dict[str, int]:
    """The first point that no record answers yet."""
    arrays = list(values.values())
    index = [0] * len(arrays) if todo is None else np.unravel_index(int(todo.argmax()), todo.shape)
    return {word: int(array[at]) for (word, array), at in zip(values.items(), index, strict=True)}


def _bounding(mask: Any, shape: tuple[int, ...]) -> tuple[slice, ...]:
    """The smallest box around what a mask holds."""
    if mask is None:
        return tuple(slice(0, length) for length in shape)
    found = []
    for at in range(len(shape)):
        line = mask.any(axis=tuple(other for other in range(len(shape)) if other != at))
        inside = np.flatnonzero(line)
        found.append(slice(int(inside[0]), int(inside[-1]) + 1) if len(inside) else slice(0, 0))
    return tuple(found)


def _cut(
    record: Record, axes: Mapping[str, Any], held: Any, todo: Any, region: tuple[slice, ...]
) -> tuple[Piece | None, Any]:
    """The piece of a region where a record holds, and the mask of what is done; None for all of a fresh box."""
    shape = tuple(part.stop - part.start for part in region)
    if todo is None and np.all(held):
        start = (0,) * len(shape)
        return Piece(record, Replay(record.tape, axes), axes, shape, None, start), None
    mask = np.broadcast_to(held, shape)
    if todo is not None:
        mask = mask & todo[region]
    inner = _bounding(mask, shape)
    if any(part.start == part.stop for part in inner):
        return None, mask
    cut = mask[inner]
    values = {word: array[_only(at, inner)] for at, (word, array) in enumerate(axes.items())}
    offset = tuple(outer.start + part.start for outer, part in zip(region, inner, strict=True))
    where = None if cut.all() else cut
    return Piece(record, Replay(record.tape, values), values, cut.shape, where, offset), mask


@dataclass(frozen=True, slots=True)
class Chosen:
    """Rows chosen from a piece: their columns as flat arrays, and their place in the box."""

    order: Any
    columns: Mapping[str, Any]


def chosen(
    piece: Piece,
    names: Sequence[str],
    where: Callable[[Callable[[str], Any]], Any] | None,
    shape: Sequence[int],
) -> Chosen | None:
    """The rows of a piece that pass a filter; None where none does."""
    mask = piece.where
    if where is not None:
        passed = where(piece.column)
        if not np.any(passed):
            return None
        mask = passed if mask is None else mask & passed
    index: Any = None
    if mask is not None and not np.all(mask):
        index = np.nonzero(np.broadcast_to(mask, piece.shape))
        if not len(index[0]):
            return None
    return _gathered(piece, names, index, shape)


def _gathered(piece: Piece, names: Sequence[str], index: Any, shape: Sequence[int]) -> Chosen:
    """The columns of the rows at an index; of all rows without one."""
    if index is None:
        places = _places(np.indices(piece.shape, dtype=np.int64, sparse=True), piece.offset, shape)
        return Chosen(
            _flat(places, piece.shape), _columns(piece, names, lambda array: _flat(array, piece.shape))
        )
    order = _places(index, piece.offset, shape)
    if len(order) * SPARSE >= int(np.prod(piece.shape)):
        pick = _columns(piece, names, lambda array: np.broadcast_to(array, piece.shape)[index])
        return Chosen(order, pick)
    values = {word: array.ravel()[at] for (word, array), at in zip(piece.values.items(), index, strict=True)}
    alone = Piece(piece.record, Replay(piece.record.tape, values), values, order.shape, None, piece.offset)
    return Chosen(order, _columns(alone, names, lambda array: _flat(array, order.shape)))


def _flat(array: Any, shape: tuple[int, ...]) -> Any:
    return np.broadcast_to(array, shape).ravel()


def _columns(piece: Piece, names: Sequence[str], pick: Callable[[Any], Any]) -> dict[str, Any]:
    found = {name: piece.column(name) for name in names}
    return {
        name: column if column is None or isinstance(column, str) else pick(column)
        for name, column in found.items()
    }


def _places(index: Any, offset: tuple[int, ...], shape: Sequence[int]) -> Any:
    """Each row's place in the order of the whole box."""
    place: Any = 0
    for at, start, length in zip(index, offset, shape, strict=True):
        place = place * length + (at + start)
    return place
