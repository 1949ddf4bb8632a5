"""A list of points answered by records: the columns of each, in arrays where there are enough of them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from zerocalc.sweeps.replay import Replay

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from zerocalc.sweeps.record import Record, Recorder

ENOUGH = 4
"""Fewer points are quicker one by one."""

Columns = dict[str, Any]


def answers(recorder: Recorder, points: Sequence[Mapping[str, int]]) -> list[Columns | str]:
    """Each point's columns, or the reason why it cannot be."""
    if len(points) < ENOUGH and not recorder.records:
        return [recorder.plainly(point) for point in points]
    if len(points) < ENOUGH or find_spec("numpy") is None:
        return [_alone(*recorder.answer_at(point)) for point in points]
    import numpy as np

    found: list[Columns | str | None] = [None] * len(points)
    left = np.arange(len(points))
    known = list(recorder.records)
    while len(left):
        record = known.pop(0) if known else recorder.record_at(points[int(left[0])])
        if not record.safe:
            return [_alone(*recorder.answer_at(point)) for point in points]
        axes = {
            word: np.array([points[at][word] for at in left.tolist()], dtype=np.int64) for word in points[0]
        }
        held = np.broadcast_to(record.holds(Replay(record.tape, axes)), left.shape)
        if held.any():
            here = {word: array[held] for word, array in axes.items()}
            for at, columns in zip(
                left[held].tolist(), _together(record, here, int(held.sum())), strict=True
            ):
                found[at] = columns
            left = left[~held]
    return [columns for columns in found if columns is not None]


def _alone(record: Record, replay: Replay) -> Columns | str:
    return record.refusal or {
        name: _plain(name, replay.number(value)) for name, value in record.columns.items()
    }


def _plain(name: str, value: Any) -> Any:
    return bool(value) if name.endswith("fits") and value is not None else value


def _together(record: Record, axes: Mapping[str, Any], length: int) -> list[Columns | str]:
    """The columns of all points at which one record holds."""
    if record.refusal is not None:
        return [record.refusal] * length
    replay = Replay(record.tape, axes)
    columns = {name: _listed(name, replay.number(value), length) for name, value in record.columns.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _listed(name: str, values: Any, length: int) -> list[Any]:
    if not hasattr(values, "tolist"):
        return [_plain(name, values)] * length
    if name.endswith("fits"):
        values = values.astype(bool)
    listed: list[Any] = values.tolist()
    return listed
