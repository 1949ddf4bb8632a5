"""The pieces of a box put together again: one batch of rows, in the grid's order."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from zerocalc.sweeps.batch import Batch
from zerocalc.sweeps.mesh import Chosen, chosen, pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from zerocalc.sweeps.batch import Filter
    from zerocalc.sweeps.record import Recorder


def merged(
    recorder: Recorder,
    box: Mapping[str, Sequence[int]],
    fixed: Mapping[str, Any],
    *,
    columns: Sequence[str],
    names: Sequence[str],
    where: Filter | None,
) -> Batch:
    """Answer one box: `columns` are a row's, `names` those that are no axis, `fixed` the values of looped axes."""
    values = {word: np.asarray(numbers, dtype=np.int64) for word, numbers in box.items()}
    shape = tuple(len(array) for array in values.values())
    varied = [name for name in columns if name in names or name not in fixed]
    refused: Counter[str] = Counter()
    found: list[Chosen] = []
    wanted = None if where is None else _with_fixed(where, fixed, names)
    for piece in pieces(recorder, values):
        if piece.record.refusal is not None:
            size = int(np.prod(piece.shape)) if piece.where is None else int(piece.where.sum())
            refused[piece.record.refusal] += size
        elif (rows := chosen(piece, varied, wanted, shape)) is not None:
            found.append(rows)
    total = int(np.prod(shape))
    if not found:
        return Batch(0, {}, total, refused)
    length = sum(len(rows.order) for rows in found)
    values_of = found[0].columns if len(found) == 1 else _interleaved(found, varied)
    typed = {name: _as_bool(name, column) for name, column in values_of.items()}
    return Batch(
        length,
        {name: typed[name] if name in typed else fixed[name] for name in columns},
        total,
        refused,
    )


def _with_fixed(where: Filter, fixed: Mapping[str, Any], names: Sequence[str]) -> Filter:
    """A filter that also knows the values of the axes that are looped over."""

    def wanted(column: Callable[[str], Any]) -> Any:
        return where(lambda name: fixed[name] if name in fixed and name not in names else column(name))

    return wanted


def _interleaved(found: list[Chosen], names: Sequence[str]) -> dict[str, Any]:
    """The rows of several pieces in the order of the box."""
    order = np.argsort(np.concatenate([rows.order for rows in found]), kind="stable")
    columns = {}
    for name in names:
        parts = [rows.columns[name] for rows in found]
        if all(part is None for part in parts) or (
            len({part if isinstance(part, str) else None for part in parts}) == 1
            and isinstance(parts[0], str)
        ):
            columns[name] = parts[0]
            continue
        whole = [
            part if hasattr(part, "dtype") else np.full(len(rows.order), part, dtype=object)
            for part, rows in zip(parts, found, strict=True)
        ]
        columns[name] = np.concatenate(whole)[order]
    return columns


def _as_bool(name: str, column: Any) -> Any:
    return (
        column.astype(bool)
        if name.endswith("fits") and hasattr(column, "dtype") and column.dtype != object
        else column
    )
