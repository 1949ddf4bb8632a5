"""One configuration's figures, traced, and the region of a grid in which the trace is the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zerocalc.errors import ZerocalcError
from zerocalc.sweeps.figures import COLUMNS, RANK_WORDS, figures, with_numbers
from zerocalc.sweeps.replay import Replay, safe_in_arrays
from zerocalc.sweeps.tape import Guard, Tape
from zerocalc.sweeps.whole import axis

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from zerocalc.specs.job import Job


@dataclass(frozen=True, slots=True)
class Record:
    """A traced answer: its columns, or why there is none, and the decisions on which it rests."""

    tape: Tape
    columns: Mapping[str, Any]
    refusal: str | None
    guards: tuple[Guard, ...]
    safe: bool
    """Whether 64-bit arrays give exact integers."""

    def holds(self, replay: Replay) -> Any:
        """Where this record is the answer; the decisions that depend on least are looked at first."""
        held: Any = True
        for guard in self.guards:
            held = held & replay.holds(*guard)
            if not _any(held):
                return False
        return held

    def holds_here(self, replay: Replay) -> bool:
        """Whether this record is the answer of a single point."""
        return all(replay.holds(*guard) for guard in self.guards)


def _any(found: Any) -> bool:
    return bool(found.any()) if hasattr(found, "any") else bool(found)


SETTLED: tuple[tuple[str, ...], ...] = ((), RANK_WORDS, ("*",))
"""Which axes are given as plain numbers: none, those of the ranks where the code cannot do with less, or all."""


MAX_RECORDS = 1024
"""Records that are kept; older ones are made again when they are needed."""


class Recorder:
    """Traces a job wherever a record is missing, and keeps the records."""

    def __init__(
        self,
        job: Job,
        axes: Mapping[str, tuple[int, int]],
        answer: Callable[[Job], Mapping[str, Any]] = figures,
    ) -> None:
        self._job = job
        self._axes = axes
        self._answer = answer
        self._level = 0
        self.records: list[Record] = []

    def record_at(self, point: Mapping[str, int]) -> Record:
        """Trace the job at a point. Code that cannot compute with recorded numbers gets plain ones."""
        while True:
            try:
                record = self._traced(point)
                break
            except (TypeError, ValueError, AttributeError):
                self._level += 1
                if self._level == len(SETTLED):
                    raise
        self.records.append(record)
        del self.records[:-MAX_RECORDS]
        return record

    def _traced(self, point: Mapping[str, int]) -> Record:
        tape = Tape()
        numbers: dict[str, Any] = {}
        settled = SETTLED[self._level]
        for word, value in point.items():
            low, high = self._axes[word]
            number = axis(tape, word, value, low=low, high=high) if low < high else value
            numbers[word] = int(number) if word in settled or "*" in settled else number
        columns: Mapping[str, Any] = dict.fromkeys(COLUMNS)
        refusal = None
        try:
            columns = self._answer(with_numbers(self._job, numbers))
        except ZerocalcError as error:
            refusal = error.message
        guards = tuple(sorted(tape.guards.values(), key=lambda guard: len(tape.axes_of(guard.number))))
        exact = [*columns.values(), *(guard.number for guard in guards)]
        return Record(tape, columns, refusal, guards, safe_in_arrays(tape, exact))

    def plainly(self, point: Mapping[str, int]) -> dict[str, Any] | str:
        """A point's columns without a record, or why it cannot be."""
        try:
            return dict(self._answer(with_numbers(self._job, point)))
        except ZerocalcError as error:
            return error.message

    def answer_at(self, point: Mapping[str, int]) -> tuple[Record, Replay]:
        """The record that holds at a point, ready to be read there in plain numbers."""
        for index in range(len(self.records) - 1, -1, -1):
            record = self.records[index]
            replay = Replay(record.tape, point)
            if record.holds_here(replay):
                self.records.append(self.records.pop(index))
                return record, replay
        record = self.record_at(point)
        return record, Replay(record.tape, point)
