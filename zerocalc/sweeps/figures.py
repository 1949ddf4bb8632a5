"""One row of a sweep: the figures of one job, by the functions that answer `estimate`, in plain or recorded numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocalc.errors import UsageError
from zerocalc.evaluate import heaviest, inapplicable, plans
from zerocalc.totals import bounded, on_node, peak_of, phases_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zerocalc.frameworks.terms import Plan, Tier
    from zerocalc.rank import RankView
    from zerocalc.specs.job import Job

RANK_WORDS = ("gpus", "dp", "gpus_per_node", "shard_size")
WORK_WORDS = ("micro_batch", "seq_len", "grad_accum")
NUMBER_WORDS = (*RANK_WORDS, *WORK_WORDS, "model")
"""Words that only set a number of the job, so that one traced run answers for many of their values."""

COLUMNS = (
    "strategy", "framework", "model_states_bytes", "peak_bytes", "peak_phase", "headroom_bytes", "fits",
    "sent_bytes_per_rank", "volume_params", "host_bytes_per_node", "host_fits", "nvme_bytes_per_node", "nvme_fits",
    "step_s_lower", "step_s_upper", "tokens_per_s_lower", "tokens_per_s_upper",
)  # fmt: skip
"""What every row has beside the values of its axes; what is not known is null."""


def with_numbers(job: Job, numbers: Mapping[str, Any]) -> Job:
    """The job with other numbers, plain or recorded, and everything else as resolved."""
    work = {word: numbers[word] for word in WORK_WORDS if word in numbers}
    ranks = {
        name: numbers[word]
        for word, name in (
            ("gpus", "world_size"),
            ("gpus_per_node", "gpus_per_node"),
            ("shard_size", "sharding_group_size"),
        )
        if word in numbers
    }
    p = job.parallelism
    if "dp" in numbers:
        ranks["world_size"] = numbers["dp"] * (p.tp * p.pp * p.cp)
    changed: dict[str, Any] = {}
    if work:
        changed["workload"] = job.workload.model_copy(update=work)
    if ranks:
        changed["parallelism"] = p.model_copy(update=ranks)
    if "model" in numbers:
        changed["model"] = job.model.model_copy(update={"num_params": numbers["model"]})
    return job.model_copy(update=changed)


def figures(job: Job) -> dict[str, Any]:
    """The columns of one row, the same numbers as `evaluate` gives.

    Raises UsageError where the strategy cannot do it, SpecError beyond the supported bounds.
    """
    if reason := inapplicable(job):
        raise UsageError(reason, hint="change the strategy, or the offload")
    classes = plans(job)
    view, plan = heaviest(classes)
    terms = [term for term in plan.terms if term.tier == "gpu"]
    phase, peak = peak_of(phases_of(terms))
    _check(plan)
    bounded(f"{job.strategy}, the peak", peak)
    headroom = _left(job.machine.capacity_bytes, job.machine.reserve_bytes + peak)
    return {
        "strategy": job.strategy,
        "framework": job.framework,
        "model_states_bytes": bounded("model states", sum(t.bytes for t in terms if t.state is not None)),
        "peak_bytes": peak,
        "peak_phase": phase,
        "headroom_bytes": headroom,
        "fits": None if headroom is None else headroom >= 0,
        "sent_bytes_per_rank": bounded("sent in one step", sum(row.sent_bytes for row in plan.collectives)),
        "volume_params": sum(row.volume_params for row in plan.collectives),
        **_tier(job, classes, "cpu", "host", job.machine.host_memory_bytes),
        **_tier(job, classes, "nvme", "nvme", job.machine.nvme_memory_bytes),
        **_times(view, plan),
    }


def _check(plan: Plan) -> None:
    """Refuse what `evaluate` refuses: every part of the answer stays below 2^63."""
    for term in plan.terms:
        bounded(term.name, term.bytes)
    for row in plan.collectives:
        bounded(row.op, row.full_bytes)
    moved: dict[str, Any] = {}
    for item in plan.traffic:
        moved[item.direction] = bounded(f"{item.link} traffic", moved.get(item.direction, 0) + item.bytes)


def _left(capacity: int | None, used: Any) -> Any:
    return None if capacity is None else capacity - used


def _tier(
    job: Job, classes: list[tuple[RankView, Plan]], tier: Tier, name: str, capacity: int | None
) -> dict[str, Any]:
    """What a node holds off its GPUs, and whether that fits."""
    held = on_node(job, (plan for _, plan in classes), tier)
    left = None if held is None else _left(capacity, held)
    return {f"{name}_bytes_per_node": held, f"{name}_fits": None if left is None else left >= 0}


def _times(view: RankView, plan: Plan) -> dict[str, Any]:
    """The bounds of a step; null without a batch or the GPU's rates."""
    names = ("step_s_lower", "step_s_upper", "tokens_per_s_lower", "tokens_per_s_upper")
    if view.job.speed is None:
        return dict.fromkeys(names)
    from zerocalc.timing import step_of

    step = step_of(view, plan)
    if step is None:
        return dict.fromkeys(names)
    bounds = (step.seconds.lower, step.seconds.upper, step.tokens_per_s.lower, step.tokens_per_s.upper)
    return dict(zip(names, bounds, strict=True))
