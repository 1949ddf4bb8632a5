"""`sweep`: every combination of what is varied, filtered and ranked while it streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zerocalc.errors import UsageError, ZerocalcError
from zerocalc.results.sweep import Refused, SweepHead, SweptAxis
from zerocalc.sweeps.axes import parse_axes
from zerocalc.sweeps.batch import BLOCK, Batch
from zerocalc.sweeps.figures import COLUMNS
from zerocalc.sweeps.grid import Build, Grid
from zerocalc.sweeps.pick import Front, Sorted, parse_keys
from zerocalc.sweeps.where import parse_where

if TYPE_CHECKING:
    from zerocalc.specs.job import Job

MAX_TOP = 1_000_000
_VARIED = {
    "gpus": ("world_size",), "dp": ("world_size",), "model": ("model", "num_params"),
    "shard_size": ("sharding_group_size",), "gpu": ("gpu", "capacity_bytes"), "node": ("node",),
}  # fmt: skip
_DERIVED = ("data_parallel_size", "shard_size", "expert_shard_size")


@dataclass
class Tally:
    """How far a sweep has come."""

    evaluated: int = 0
    found: int = 0
    """Rows that passed the filter."""
    fitting: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    def take(self, batch: Batch) -> None:
        """Count a batch."""
        self.evaluated += batch.evaluated
        self.found += batch.length
        self.refused.update(batch.refused)
        self.fitting += _number_true(batch.columns.get("fits"), batch.length)

    @property
    def reasons(self) -> list[Refused]:
        """Why configurations were refused, the commonest reason first."""
        return [
            Refused(reason=reason, num_configurations=number) for reason, number in self.refused.most_common()
        ]


def _number_true(column: Any, length: int) -> int:
    """How many rows have true in a column, which may be the same in all."""
    if isinstance(column, list) or hasattr(column, "tolist"):
        return (
            sum(value is True for value in column)
            if isinstance(column, list)
            else int((column == True).sum())  # noqa: E712
        )
    return length if column is True else 0


@dataclass(frozen=True)
class Sweep:
    """A sweep that is ready to run."""

    grid: Grid
    picker: Sorted | Front | None
    tally: Tally = field(default_factory=Tally)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a row."""
        return self.grid.columns

    def progress(self) -> Iterator[list[tuple[Any, ...]]]:
        """Answer the grid block by block: the rows that are final by then, possibly none.

        Raises UsageError when no configuration of the grid can be.
        """
        for batch in self.grid.batches():
            self.tally.take(batch)
            if self.picker is not None and batch.length:
                self.picker.add(batch)
            elif self.picker is None:
                yield from batch.blocks()
            yield []
        if sum(self.tally.refused.values()) == self.tally.evaluated:
            first = self.tally.reasons[0].reason
            raise UsageError(
                f"no configuration of the grid can be: {first}", hint="change the axes or what is fixed"
            )
        if self.picker is not None:
            rows = self.picker.rows()
            yield from (rows[low : low + BLOCK] for low in range(0, len(rows), BLOCK))

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows, each with its columns' names."""
        for chunk in self.progress():
            for row in chunk:
                yield dict(zip(self.columns, row, strict=True))

    def head(self) -> SweepHead:
        """What is said before the first row."""
        from zerocalc.evaluate import request_of

        job = self._first_job()
        varied = {word for axis in self.grid.axes for word in (axis.word, *_VARIED.get(axis.word, ()))}
        varied |= {f"settings.{axis.setting}" for axis in self.grid.axes if axis.setting}
        request = {} if job is None else request_of(job)
        notes: dict[str, Any] = _notes(job)
        return SweepHead(
            kind="sweep",
            request={
                word: value for word, value in request.items() if word not in varied and word not in _DERIVED
            },
            axes=[SweptAxis(word=axis.word, num_values=len(axis)) for axis in self.grid.axes],
            columns=list(self.columns),
            num_configurations=self.grid.size,
            **notes,
        )

    def _first_job(self) -> Job | None:
        try:
            return self.grid.build({axis.word: axis.text(0) for axis in self.grid.axes})
        except ZerocalcError:
            return None


def _notes(job: Job | None) -> dict[str, list[str]]:
    """What the first configuration assumes and leaves out."""
    if job is None:
        return {}
    from zerocalc.evaluate import excluded_of, heaviest, inapplicable, plans, strategy_assumed

    if inapplicable(job):
        return {"assumptions": list(job.assumptions), "warnings": list(job.warnings)}
    try:
        _, plan = heaviest(plans(job))
    except ZerocalcError:
        return {"assumptions": list(job.assumptions), "warnings": list(job.warnings)}
    return {
        "assumptions": [*strategy_assumed(job), *job.assumptions],
        "excluded": excluded_of(job, plan),
        "warnings": list(job.warnings),
    }


def prepare(
    build: Build,
    over: Sequence[str],
    *,
    where: str | None = None,
    sort: str | None = None,
    top: int | None = None,
    pareto: str | None = None,
    vectorised: bool | None = None,
) -> Sweep:
    """Read the axes, the filter and the order of a sweep.

    Raises UsageError where they cannot be read or contradict each other, SpecError for a value out of bounds.
    """
    axes = parse_axes(over)
    grid = Grid(axes, build, vectorised=vectorised)
    words = [axis.word for axis in axes]
    columns = [*words, *(name for name in COLUMNS if name not in words)]
    if pareto is not None and (sort is not None or top is not None):
        raise UsageError("--pareto and --sort or --top both choose rows", hint="give one of them")
    if top is not None and sort is None:
        raise UsageError("--top needs an order", hint="like --sort step_s_upper --top 10")
    if top is not None and not 1 <= top <= MAX_TOP:
        raise UsageError(f"--top: must be between 1 and {MAX_TOP:,} (got {top})")
    picker: Sorted | Front | None = None
    if sort is not None:
        picker = Sorted(parse_keys(sort, columns), top)
    elif pareto is not None:
        picker = Front(parse_keys(pareto, columns, best=True))
    condition = None if where is None else parse_where(where, columns)
    return (
        Sweep(Grid(axes, build, where=condition, vectorised=vectorised), picker)
        if condition
        else Sweep(grid, picker)
    )


def sweep(
    model: str | int | None = None,
    *,
    over: Mapping[str, Any],
    where: str | None = None,
    sort: str | None = None,
    top: int | None = None,
    pareto: str | None = None,
    settings: Mapping[str, Any] | None = None,
    **words: Any,
) -> Iterator[dict[str, Any]]:
    """Answer for every combination of the axes' values, as rows.

    `over` names the axes: `{"gpus": "8..1024:*2", "strategy": ["zero2", "zero3"]}`. Raises ZerocalcError for bad input.
    """
    from zerocalc.api import job

    def build(point: Mapping[str, str]) -> Job:
        varied = {word: text for word, text in point.items() if not word.startswith("set.")}
        own = {word.removeprefix("set."): text for word, text in point.items() if word.startswith("set.")}
        given = {"model": model, **words, **varied}
        return job(given.pop("model"), settings={**(settings or {}), **own}, **given)

    texts = [f"{word}={_typed(values)}" for word, values in over.items()]
    yield from prepare(build, texts, where=where, sort=sort, top=top, pareto=pareto).rows()


def _typed(values: Any) -> str:
    """Values as they would be typed after `AXIS=`."""
    if isinstance(values, (str, int, float)):
        return str(values)
    if isinstance(values, range) and values.step > 0 and len(values) > 1:
        return f"{values[0]}..{values[-1]}:{values.step}"
    return ",".join(str(value) for value in values)
