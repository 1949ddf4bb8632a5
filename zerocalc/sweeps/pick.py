"""The best rows of a sweep, found while it streams: sorted, the first few, or those that nothing beats."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from zerocalc.errors import UsageError
from zerocalc.sweeps.where import column_named

if TYPE_CHECKING:
    from zerocalc.sweeps.batch import Batch

MAX_SORTED = 1_000_000
"""Rows that are held to be sorted; more need `--top`."""
MAX_FRONT = 100_000
MORE_IS_BETTER = ("tokens_per_s_lower", "tokens_per_s_upper", "headroom_bytes", "fits")


class Key(NamedTuple):
    """A column to order by, and which way."""

    column: str
    sign: int
    """1 for least first, -1 for most first."""


def parse_key(text: str, columns: Sequence[str], *, best: bool = False) -> Key:
    """Read `COL` or `COL:desc`; `best` turns columns of which more is better. Raises UsageError for no column."""
    name, _, order = text.strip().partition(":")
    if order not in {"", "asc", "desc", "min", "max"}:
        raise UsageError(
            f"{text}: the order must be asc or desc", hint="like --sort step_s_upper or --sort gpus:desc"
        )
    column = column_named(name, columns)
    most = order in {"desc", "max"} if order else best and column in MORE_IS_BETTER
    return Key(column, -1 if most else 1)


def parse_keys(text: str, columns: Sequence[str], *, best: bool = False) -> list[Key]:
    """Read keys with commas between them."""
    return [parse_key(part, columns, best=best) for part in text.split(",")]


def _ordered(column: Any, sign: int, length: int) -> Any:
    """A column as numbers to be minimised; null counts as worst."""
    import numpy as np

    if not hasattr(column, "dtype"):
        column = (
            np.full(length, column, dtype=object)
            if not isinstance(column, list)
            else np.array(column, dtype=object)
        )
    if column.dtype == object:
        if any(isinstance(value, str) for value in column):
            raise UsageError("rows are ordered by numbers, not by names")
        column = np.array([float("nan") if value is None else float(value) for value in column])
    if column.dtype == bool:
        column = column.astype(np.int64)
    return np.where(np.isnan(column), np.inf, sign * column) if column.dtype.kind == "f" else sign * column


class Sorted:
    """The first `limit` rows by some keys; rows that are equal keep the grid's order."""

    def __init__(self, keys: Sequence[Key], limit: int | None) -> None:
        self._keys = keys
        self._limit = limit
        self._seen = 0
        self._heap: list[tuple[Any, ...]] = []

    def add(self, batch: Batch) -> None:
        """Take in a batch. Raises UsageError when more rows are to be sorted than can be held."""
        for entry in self._entries(batch):
            if self._limit is None:
                if len(self._heap) == MAX_SORTED:
                    raise UsageError(
                        f"more than {MAX_SORTED:,} rows to sort", hint="give --top N, or a narrower --where"
                    )
                self._heap.append(entry)
            elif len(self._heap) < self._limit:
                heapq.heappush(self._heap, entry)
            elif entry > self._heap[0]:
                heapq.heapreplace(self._heap, entry)

    def _entries(self, batch: Batch) -> Iterable[tuple[Any, ...]]:
        """Rows behind their keys, negated so that the heap's least is the worst; most of a batch need not be looked at."""
        rows = _preselected(batch, self._keys, self._limit)
        names = list(batch.columns)
        at = [names.index(key.column) for key in self._keys]
        for row in rows:
            self._seen += 1
            keys = (_worth(row[index], key.sign) for index, key in zip(at, self._keys, strict=True))
            yield (*keys, -self._seen, row)

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows, best first."""
        return [entry[-1] for entry in sorted(self._heap, key=lambda entry: entry[:-1], reverse=True)]


def _worth(value: Any, sign: int) -> Any:
    """A value to be maximised; null is the worst."""
    if isinstance(value, str):
        raise UsageError("rows are ordered by numbers, not by names")
    return float("-inf") if value is None else -sign * value


def _preselected(batch: Batch, keys: Sequence[Key], limit: int | None) -> Iterable[tuple[Any, ...]]:
    """The rows of a batch that may be among the first `limit`: by the first key, ties included."""
    first = batch.columns[keys[0].column]
    if limit is None or batch.length <= limit or not hasattr(first, "dtype"):
        return batch.rows()
    import numpy as np

    values = _ordered(first, keys[0].sign, batch.length)
    bound = np.partition(values, limit - 1)[limit - 1]
    return taken(batch, np.flatnonzero(values <= bound)).rows()


def taken(batch: Batch, index: Any) -> Batch:
    """Some rows of a batch."""
    columns = {
        name: column[index]
        if hasattr(column, "dtype")
        else [column[at] for at in index]
        if isinstance(column, list)
        else column
        for name, column in batch.columns.items()
    }
    return batch._replace(length=len(index), columns=columns)


class Front:
    """The rows that no other beats in every objective (the Pareto front); of equal ones the first."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._keys = keys
        self._points: list[tuple[Any, ...]] = []
        self._rows: list[tuple[Any, ...]] = []

    def add(self, batch: Batch) -> None:
        """Take in a batch. Raises UsageError when the front itself is too large to hold."""
        names = list(batch.columns)
        at = [names.index(key.column) for key in self._keys]
        for row in self._preselected(batch).rows():
            if any(row[index] is None for index in at):
                continue
            point = tuple(-_worth(row[index], key.sign) for index, key in zip(at, self._keys, strict=True))
            if any(_no_worse(other, point) for other in self._points):
                continue
            kept = [index for index, other in enumerate(self._points) if not _no_worse(point, other)]
            self._points = [*(self._points[index] for index in kept), point]
            self._rows = [*(self._rows[index] for index in kept), row]
            if len(self._rows) > MAX_FRONT:
                raise UsageError(f"the front has more than {MAX_FRONT:,} rows", hint="give fewer objectives")

    def _preselected(self, batch: Batch) -> Batch:
        """The rows of a batch that a known point does not beat, and of those the front of the batch."""
        if not any(hasattr(batch.columns[key.column], "dtype") for key in self._keys) or not batch.length:
            return batch
        import numpy as np

        values = np.stack(
            [_ordered(batch.columns[key.column], key.sign, batch.length).astype(float) for key in self._keys]
        )
        left = np.flatnonzero(np.isfinite(values).all(axis=0))
        for point in self._points:
            left = left[(values[:, left] < np.array(point, dtype=float)[:, None]).any(axis=0)]
        kept: list[int] = []
        scale = np.maximum(np.abs(values[:, left]).max(axis=1, initial=0), 1)[:, None]
        while len(left):
            best = left[int((values[:, left] / scale).sum(axis=0).argmin())]
            kept.append(int(best))
            left = left[(values[:, left] < values[:, best][:, None]).any(axis=0)]
        return taken(batch, np.array(sorted(kept), dtype=np.int64))

    def rows(self) -> list[tuple[Any, ...]]:
        """The front, ordered by its first objective."""
        return [
            row for _, row in sorted(zip(self._points, self._rows, strict=True), key=lambda item: item[0])
        ]


def _no_worse(point: Sequence[Any], other: Sequence[Any]) -> bool:
    return all(a <= b for a, b in zip(point, other, strict=True))
