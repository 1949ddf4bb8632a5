"""Job -> Estimates: the only place where specs meet frameworks. Its totals are made in `totals`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from zerocalc.errors import UsageError
from zerocalc.frameworks import framework_named, prepared
from zerocalc.rank import RankView, rank_views
from zerocalc.results import Estimates, Memory, OffloadResult, Resolved, StrategyResult
from zerocalc.specs.job import SECTION_WORDS, WHAT_RESERVE_COVERS
from zerocalc.strategies import STRATEGIES, strategy_named
from zerocalc.totals import (
    binding_term,
    communication,
    gpu_memory,
    on_node,
    peak_of,
    phases_of,
    tier_memory,
    tier_peak,
)

if TYPE_CHECKING:
    from zerocalc.frameworks.terms import Plan, Tier
    from zerocalc.results import TierMemory
    from zerocalc.results.time import Timing
    from zerocalc.specs.job import Job

STATES_ONLY = (
    "activations, logits and temporaries (give --micro-batch and --seq-len with a model whose shape is known)"
)


def inapplicable(job: Job) -> str | None:
    """Why the framework or the asked offload cannot be combined with the strategy, or None where they can."""
    strategy = strategy_named(job.strategy)
    module = framework_named(job.framework)
    offered = module.STRATEGIES
    if strategy.name in getattr(module, "INAPPLICABLE", {}):
        return str(module.INAPPLICABLE[strategy.name])
    if strategy.name not in offered:
        return f"{job.framework} has no {strategy.name}; it offers {', '.join(s for s in STRATEGIES if s in offered)}"
    if job.offload.params != "none" and "params" not in strategy.offload:
        return (
            f"{strategy.name} keeps whole parameters on the GPU; only {_offering('params')} can offload them"
        )
    if job.offload.optimizer != "none" and "optimizer_states" not in strategy.offload:
        return f"{strategy.name} cannot offload optimizer states; {_offering('optimizer_states')} can"
    return None


def _offering(state: Any) -> str:
    return ", ".join(row.name for row in STRATEGIES.values() if state in row.offload)


def with_framework(job: Job, framework: str) -> Job:
    """The job in another framework's hands, with those of its settings that this framework has."""
    rows = {row.name for row in framework_named(framework).SETTINGS}
    kept = {name: value for name, value in job.settings.items() if name in rows}
    return job.model_copy(update={"framework": framework, "settings": kept})


def plans(job: Job) -> list[tuple[RankView, Plan]]:
    """Every rank class with what its framework says about it."""
    module = framework_named(job.framework)
    return [(view, module.plan(view)) for view in rank_views(prepared(job))]


def heaviest(classes: list[tuple[RankView, Plan]]) -> tuple[RankView, Plan]:
    """The rank class with the largest peak on the GPU."""
    return max(classes, key=lambda item: tier_peak(item[1], "gpu"))


def peak_bytes(job: Job) -> int:
    """Bytes at the peak on the GPU of the rank that holds most."""
    _, plan = heaviest(plans(job))
    return tier_peak(plan, "gpu")


def unshared_bytes(job: Job) -> int:
    """Bytes on the GPU that no further GPU shares, at the phase that holds most of them."""
    return max(
        peak_of(phases_of(term for term in plan.terms if term.tier == "gpu" and not term.falls))[1]
        for _, plan in plans(job)
    )


def overfull(job: Job) -> Tier | None:
    """The first memory that the job does not fit, `gpu`, `cpu` or `nvme`; None where it fits all whose size is known."""
    held_by = [plan for _, plan in plans(job)]
    machine = job.machine
    if machine.capacity_bytes is not None:
        room = machine.capacity_bytes - machine.reserve_bytes
        if any(tier_peak(plan, "gpu") > room for plan in held_by):
            return "gpu"
    for tier, capacity in _tiers_of(job).items():
        held = on_node(job, held_by, tier)
        if capacity is not None and held is not None and held > capacity:
            return tier
    return None


def _tiers_of(job: Job) -> dict[Tier, int | None]:
    """What a node has of each tier beside its GPUs; null where it is not known."""
    return {"cpu": job.machine.host_memory_bytes, "nvme": job.machine.nvme_memory_bytes}


def fits_everywhere(result: StrategyResult) -> bool:
    """Whether a configuration fits its GPU, and no tier is known to overflow."""
    tiers = () if result.memory is None else (result.memory.cpu, result.memory.nvme)
    return bool(result.fits) and all(tier.fits is not False for tier in tiers)


def evaluate(job: Job) -> tuple[StrategyResult, Plan]:
    """One configuration's result and the plan behind it. Raises UsageError where the strategy cannot do it."""
    if reason := inapplicable(job):
        raise UsageError(reason, hint="change --strategy, or the offload")
    classes = plans(job)
    view, plan = heaviest(classes)
    gpu = gpu_memory(view, plan)
    machine = job.machine
    headroom = (
        None
        if machine.capacity_bytes is None
        else machine.capacity_bytes - machine.reserve_bytes - gpu.peak_bytes
    )
    result = StrategyResult(
        strategy=job.strategy,
        framework=job.framework,
        offload=OffloadResult(optimizer=job.offload.optimizer, params=job.offload.params),
        rank_class=view.name,
        memory=Memory(gpu=gpu, **_off_the_gpu(job, classes, plan)),
        savings_factor=_savings(job, gpu.model_states_bytes),
        communication=communication(plan),
        fits=None if headroom is None else headroom >= 0,
        capacity_bytes=machine.capacity_bytes,
        reserve_bytes=machine.reserve_bytes,
        headroom_bytes=headroom,
        binding=binding_term(gpu),
        time=_time(view, plan),
    )
    return result, plan


def _off_the_gpu(job: Job, classes: list[tuple[RankView, Plan]], plan: Plan) -> dict[str, TierMemory]:
    """Each tier as the answering rank holds it, and as the node that holds most does; says so where that is another."""
    found: dict[str, TierMemory] = {}
    for tier, capacity in _tiers_of(job).items():
        node_bytes = on_node(job, (each for _, each in classes), tier)
        found[tier] = tier_memory(plan, tier, node_bytes=node_bytes, capacity=capacity)
        fullest, most = max(classes, key=lambda item: tier_peak(item[1], tier))
        if node_bytes is not None and tier_peak(most, tier) > found[tier].bytes_per_rank:
            plan.assumptions.append(
                f"{'host' if tier == 'cpu' else 'NVMe'} memory per node is that of a node with {fullest.name} only, whose ranks hold most there"
            )
    return found


def estimate(job: Job) -> Estimates:
    """One configuration in full: every term, phase, tier and collective.

    Raises UsageError where the strategy cannot do what is asked, SpecError beyond the supported bounds.
    """
    result, plan = evaluate(job)
    return Estimates(
        kind="estimate",
        request=request_of(job),
        results=[result],
        assumptions=[*strategy_assumed(job), *job.assumptions, *plan.assumptions],
        excluded=excluded_of(job, plan),
        warnings=[*job.warnings, *plan.warnings],
    )


def excluded_of(job: Job, plan: Plan) -> list[str]:
    """What the answer neither counts nor keeps free."""
    counted = any(term.name.startswith("activation") for term in plan.terms)
    kept_free = job.machine.reserve_bytes > 0
    return [
        *plan.excluded,
        *([] if counted else [STATES_ONLY]),
        *([] if kept_free else [f"{WHAT_RESERVE_COVERS} (use --reserve)"]),
    ]


def strategy_assumed(job: Job) -> list[str]:
    """That nobody chose the strategy, where nobody did."""
    chosen = job.origins.get("strategy", "default") != "default"
    return [] if chosen else [f"strategy {job.strategy} (default); --strategy chooses"]


def request_of(job: Job) -> dict[str, Resolved]:
    """The resolved job in the vocabulary's words, each value with its origin."""
    dumped = job.model_dump(mode="json", exclude={"origins", "assumptions", "warnings", "also", "settings"})
    values = dict(_words(dumped))
    values |= {
        "data_parallel_size": job.parallelism.data_parallel_size,
        "shard_size": job.parallelism.shard_size,
        "expert_shard_size": job.parallelism.expert_shard_size,
        **{f"also.{model.role}:{model.name}": model.num_params for model in job.also},
        **{f"settings.{name}": value for name, value in job.settings.items()},
    }
    derived = {"data_parallel_size", "shard_size", "expert_shard_size"}
    origins = {**(job.speed.origins if job.speed else {}), **job.origins}
    return {
        word: Resolved(value=value, origin=origins.get(word, "derived" if word in derived else "default"))
        for word, value in values.items()
    }


def _words(dumped: dict[str, Any], section: str = "") -> Iterator[tuple[str, Any]]:
    """Flatten the specs: a field is its own word, but for the few that need their section to be one."""
    for field, value in dumped.items():
        if isinstance(value, dict):
            yield from _words(value, field)
        else:
            yield SECTION_WORDS.get((section, field), field), value


def _savings(job: Job, states: int) -> float | None:
    """How many times less than DDP the rank holds, in model states on the GPU."""
    states_only = job.workload.model_copy(update={"micro_batch": None})
    ddp = job.model_copy(
        update={"strategy": "ddp", "settings": {}, "offload": type(job.offload)(), "workload": states_only}
    )
    if inapplicable(ddp):
        ddp = ddp.model_copy(update={"framework": "paper"})
    _, plan = heaviest(plans(ddp))
    whole = sum(term.bytes for term in plan.terms if term.state is not None and term.tier == "gpu")
    return whole / states if states else None


def _time(view: RankView, plan: Plan) -> Timing | None:
    """Bounds of one step; the timing model loads only when there are rates to time with."""
    if view.job.speed is None:
        return None
    from zerocalc.timing import step_time

    return step_time(view, plan)
