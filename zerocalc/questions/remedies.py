"""What would bring a job back within its limits, found by trying: each kind of change is a row.

The rows are tried in the order in which they cost the training least, single changes before several; the first that
keeps every limit is the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from zerocalc.errors import ZerocalcError
from zerocalc.evaluate import evaluate, inapplicable
from zerocalc.questions.snapshots import metric
from zerocalc.results.check import Remedy, RemedyChange, Value
from zerocalc.strategies import COMPARED

if TYPE_CHECKING:
    from zerocalc.results import StrategyResult
    from zerocalc.specs.job import Job

MOST_DOUBLINGS = 6
"""How far more GPUs are tried."""


class Candidate(NamedTuple):
    """A job with some words changed: now and then."""

    job: Job
    changes: dict[str, tuple[Value, Value]]


Row = Callable[["Job"], Iterator[Candidate]]


def _more_sharding(job: Job) -> Iterator[Candidate]:
    """The next strategies that shard more."""
    if job.strategy in COMPARED:
        yield from _strategies(job, COMPARED[COMPARED.index(job.strategy) + 1 :])


def _less_sharding(job: Job) -> Iterator[Candidate]:
    """The strategies that shard less, and may send less."""
    if job.strategy in COMPARED:
        yield from _strategies(job, COMPARED[: COMPARED.index(job.strategy)][::-1])


def _strategies(job: Job, names: tuple[str, ...]) -> Iterator[Candidate]:
    for strategy in names:
        yield Candidate(job.model_copy(update={"strategy": strategy}), {"strategy": (job.strategy, strategy)})


def _smaller_micro_batch(job: Job) -> Iterator[Candidate]:
    """Half the micro-batch with twice the accumulation, and so on: the batch of a step stays what it is."""
    work, factor = job.workload, 2
    while work.micro_batch is not None and work.micro_batch % factor == 0:
        micro, accum = work.micro_batch // factor, work.grad_accum * factor
        changed = work.model_copy(update={"micro_batch": micro, "grad_accum": accum})
        yield Candidate(
            job.model_copy(update={"workload": changed}),
            {"micro_batch": (work.micro_batch, micro), "grad_accum": (work.grad_accum, accum)},
        )
        factor *= 2


def _checkpointing(job: Job) -> Iterator[Candidate]:
    """Recompute all activations."""
    work = job.workload
    if work.micro_batch is not None and work.checkpointing != "full":
        variant = job.model_copy(update={"workload": work.model_copy(update={"checkpointing": "full"})})
        yield Candidate(variant, {"checkpointing": (work.checkpointing, "full")})


def _more_gpus(job: Job) -> Iterator[Candidate]:
    """Twice the GPUs, and so on."""
    ranks = job.parallelism
    for doubling in range(1, MOST_DOUBLINGS + 1):
        world = ranks.world_size << doubling
        variant = job.model_copy(update={"parallelism": ranks.model_copy(update={"world_size": world})})
        yield Candidate(variant, {"gpus": (ranks.world_size, world)})


def _offload(job: Job) -> Iterator[Candidate]:
    """Keep optimizer states in host memory."""
    if job.offload.optimizer == "none":
        variant = job.model_copy(update={"offload": job.offload.model_copy(update={"optimizer": "cpu"})})
        yield Candidate(variant, {"offload_optimizer": ("none", "cpu")})


def _no_offload(job: Job) -> Iterator[Candidate]:
    """Bring states back to the GPU."""
    for field in ("params", "optimizer"):
        now = getattr(job.offload, field)
        if now != "none":
            variant = job.model_copy(update={"offload": job.offload.model_copy(update={field: "none"})})
            yield Candidate(variant, {f"offload_{field}": (now, "none")})


ROWS: tuple[tuple[Row, ...], ...] = (
    (_more_sharding,),
    (_smaller_micro_batch,),
    (_checkpointing,),
    (_less_sharding,),
    (_no_offload,),
    (_offload,),
    (_more_gpus,),
    (_more_sharding, _smaller_micro_batch),
    (_more_sharding, _checkpointing),
    (_checkpointing, _smaller_micro_batch),
    (_more_sharding, _checkpointing, _smaller_micro_batch),
    (_more_sharding, _checkpointing, _offload),
)
ACTIVATIONS_FIRST = ((_smaller_micro_batch,), (_checkpointing,))
"""Where activations are the largest part at the peak, these come before more sharding."""
_ORIGINS = {"gpus": "world_size"}


def remedy(
    job: Job, result: StrategyResult, path: str, holds: Callable[[StrategyResult], bool]
) -> Remedy | None:
    """The first change with which the budget holds, or None."""
    rows = sorted(ROWS, key=lambda row: row not in ACTIVATIONS_FIRST) if _work_binds(result) else ROWS
    for row in rows:
        for candidate in _candidates(Candidate(job, {}), row):
            found = _tried(candidate.job, holds)
            if found is not None:
                changes = [
                    RemedyChange(word=word, now=now, origin=_origin(job, word), value=value)
                    for word, (now, value) in candidate.changes.items()
                ]
                return Remedy(
                    changes=changes, result=metric(found, path), headroom_bytes=found.headroom_bytes
                )
    return None


def _candidates(before: Candidate, row: tuple[Row, ...]) -> Iterator[Candidate]:
    """Every way to make all of a row's changes."""
    if not row:
        yield before
        return
    for step in row[0](before.job):
        yield from _candidates(Candidate(step.job, {**before.changes, **step.changes}), row[1:])


def _origin(job: Job, word: str) -> str:
    return job.origins.get(_ORIGINS.get(word, word), "default")


def _work_binds(result: StrategyResult) -> bool:
    return (result.binding or "").startswith(("activation", "logits", "loss"))


def _tried(job: Job, holds: Callable[[StrategyResult], bool]) -> StrategyResult | None:
    """The job's result when it keeps every limit; what cannot be evaluated keeps none."""
    try:
        if inapplicable(job):
            return None
        result, _ = evaluate(job)
        return result if holds(result) else None
    except ZerocalcError:
        return None
