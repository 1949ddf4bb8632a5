"""A grid answered chunk by chunk: what names something is looped over, what is a number varies inside arrays.

Memory depends on the chunk, not on the grid. Without numpy the same rows come out of the same records, one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from math import prod
from typing import TYPE_CHECKING, Any

from zerocalc.errors import FileError, UnknownNameError, UsageError, ZerocalcError
from zerocalc.sweeps.axes import Axis, shown
from zerocalc.sweeps.batch import Batch, Filter
from zerocalc.sweeps.figures import COLUMNS, NUMBER_WORDS
from zerocalc.sweeps.record import Recorder

if TYPE_CHECKING:
    from zerocalc.specs.job import Job

CHUNK = 1 << 17
"""Configurations that are held at once."""
PLAIN_CHUNK = 1 << 10
TRIES = 64

Build = Callable[[Mapping[str, str]], "Job"]
"""Makes the job of a point from the values of its axes, as typed."""


@dataclass(frozen=True)
class Grid:
    """All combinations of the axes' values."""

    axes: Sequence[Axis]
    build: Build
    where: Filter | None = None
    names: tuple[str, ...] = COLUMNS
    vectorised: bool | None = None
    """Whether arrays are used; None where numpy is installed."""

    @property
    def size(self) -> int:
        """How many configurations there are."""
        return prod(len(axis) for axis in self.axes)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a row: its axes, then its figures."""
        return tuple(dict.fromkeys((*(axis.word for axis in self.axes), *self.names)))

    def batches(self) -> Iterator[Batch]:
        """Answer the grid. Raises ZerocalcError for a name nothing answers to, or where no configuration can be."""
        arrays = find_spec("numpy") is not None if self.vectorised is None else self.vectorised
        numeric = self._numeric()
        looped = [axis for axis in self.axes if axis not in numeric]
        for index in range(prod(len(axis) for axis in looped)):
            words = _point(looped, index)
            inside = prod(len(axis) for axis in numeric)
            try:
                job = self._job(words, numeric)
            except (UnknownNameError, FileError):
                raise
            except ZerocalcError as error:
                yield Batch(0, {}, inside, {error.message: inside})
                continue
            yield from self._answers(job, words, numeric, arrays=arrays)

    def _numeric(self) -> list[Axis]:
        """The axes that only set a number of the job."""
        found = [axis for axis in self.axes if axis.word in NUMBER_WORDS and axis.numbers() is not None]
        words = {axis.word for axis in self.axes}
        if {"gpus", "dp"} <= words:
            raise UsageError("gpus and dp are both varied", hint="vary one of them: world size = dp·tp·pp·cp")
        if any(axis.word == "model" for axis in found) and not self._counts_only(found):
            found = [axis for axis in found if axis.word != "model"]
        return found

    def _counts_only(self, numeric: list[Axis]) -> bool:
        """Whether nothing about the model but its count matters."""
        looped = [axis for axis in self.axes if axis not in numeric]
        try:
            model = self._job(_point(looped, 0), numeric).model
        except ZerocalcError:
            return False
        plain = model.architecture is None and model.adapter is None and not model.num_expert_params
        return plain and model.num_trainable_params is None

    def _job(self, words: Mapping[str, str], numeric: Sequence[Axis]) -> Job:
        """The job of a looped point, built for the first of the numbers with which it can be."""
        total = prod(len(axis) for axis in numeric)
        tries = dict.fromkeys(
            (*range(min(TRIES, total)), *(total * part // TRIES for part in range(TRIES)), total - 1)
        )
        first: ZerocalcError | None = None
        for index in tries:
            try:
                return self.build({**words, **_point(numeric, index, first_fastest=True)})
            except (UnknownNameError, FileError):
                raise
            except UsageError as error:
                first = first or error
        assert first is not None
        raise first

    def _answers(
        self, job: Job, words: Mapping[str, str], numeric: Sequence[Axis], *, arrays: bool
    ) -> Iterator[Batch]:
        numbers = {axis.word: axis.numbers() or () for axis in numeric}
        fixed = {word: shown(word, text) for word, text in words.items()}
        recorder = Recorder(job, {axis.word: _ends(axis, numbers[axis.word]) for axis in numeric})
        for box in _boxes(numbers, CHUNK if arrays else PLAIN_CHUNK):
            if arrays:
                yield self._in_arrays(job, recorder, box, fixed)
            else:
                yield self._point_by_point(recorder, box, fixed)

    def _in_arrays(
        self, job: Job, recorder: Recorder, box: Mapping[str, Sequence[int]], fixed: Mapping[str, Any]
    ) -> Batch:
        """One box in arrays; where 64 bits do not suffice, with narrower bounds, and at last in Python's integers."""
        from zerocalc.sweeps.merge import merged
        from zerocalc.sweeps.mesh import InexactError

        try:
            return merged(recorder, box, fixed, columns=self.columns, names=self.names, where=self.where)
        except InexactError:
            narrow = Recorder(job, {word: (min(values), max(values)) for word, values in box.items()})
        try:
            return merged(narrow, box, fixed, columns=self.columns, names=self.names, where=self.where)
        except InexactError:
            return self._point_by_point(recorder, box, fixed)

    def _point_by_point(
        self, recorder: Recorder, box: Mapping[str, Sequence[int]], fixed: Mapping[str, Any]
    ) -> Batch:
        columns: dict[str, list[Any]] = {name: [] for name in self.columns}
        refused: Counter[str] = Counter()
        total = prod(len(values) for values in box.values())
        for index in range(total):
            point = _unravelled(box, index)
            record, replay = recorder.answer_at(point)
            if record.refusal is not None:
                refused[record.refusal] += 1
                continue
            known = {**fixed, **point}

            def column(
                name: str, known: Mapping[str, Any] = known, record: Any = record, replay: Any = replay
            ) -> Any:
                value = record.columns.get(name)
                return (
                    known[name]
                    if name in known and name not in self.names
                    else _plain(name, replay.number(value))
                )

            if self.where is None or self.where(column):
                for name, values in columns.items():
                    values.append(column(name))
        return Batch(len(next(iter(columns.values()))), columns, total, refused)


def _ends(axis: Axis, numbers: Sequence[int]) -> tuple[int, int]:
    """The least and the largest of an axis; a span's are its ends."""
    listed = numbers if axis.span is None else (numbers[0], numbers[-1])
    return min(listed), max(listed)


def _plain(name: str, value: Any) -> Any:
    return bool(value) if name.endswith("fits") and value is not None else value


def _point(axes: Sequence[Axis], index: int, *, first_fastest: bool = False) -> dict[str, str]:
    """The values at an index of the axes' combinations, the last axis fastest unless asked otherwise."""
    point: dict[str, str] = {}
    for axis in axes if first_fastest else reversed(axes):
        index, at = divmod(index, len(axis))
        point[axis.word] = axis.text(at)
    return {axis.word: point[axis.word] for axis in axes}


def _unravelled(box: Mapping[str, Sequence[int]], index: int) -> dict[str, int]:
    point: dict[str, int] = {}
    for word in reversed(list(box)):
        index, at = divmod(index, len(box[word]))
        point[word] = box[word][at]
    return {word: point[word] for word in box}


def _boxes(numbers: Mapping[str, Sequence[int]], limit: int) -> Iterator[dict[str, Sequence[int]]]:
    """Cut a mesh into boxes of at most `limit` points, in its own order: whole in the last axes, cut in one."""
    words = list(numbers)
    at, inner = len(words), 1
    while at > 0 and inner * len(numbers[words[at - 1]]) <= limit:
        at -= 1
        inner *= len(numbers[words[at]])
    whole = {word: numbers[word][0 : len(numbers[word])] for word in words[at:]}
    if at == 0:
        yield whole
        return
    cut, outer = words[at - 1], words[: at - 1]
    step = max(1, limit // inner)
    for index in range(prod(len(numbers[word]) for word in outer)):
        fixed = _unravelled({word: numbers[word] for word in outer}, index)
        for low in range(0, len(numbers[cut]), step):
            part = numbers[cut][low : min(low + step, len(numbers[cut]))]
            yield {**{word: [value] for word, value in fixed.items()}, cut: part, **whole}
