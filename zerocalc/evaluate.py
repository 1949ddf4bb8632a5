"""Job -> Estimates: the only place where specs meet frameworks. Totals are sums over terms, made here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from zerocalc.errors import SpecError, UsageError
from zerocalc.frameworks import framework_named, prepared
from zerocalc.frameworks.terms import PHASES, Collective, Plan, Term, Tier
from zerocalc.rank import RankView, rank_views
from zerocalc.results import (
    CollectiveResult,
    Communication,
    Estimates,
    GpuMemory,
    HostLink,
    Links,
    Memory,
    NvmeLink,
    OffloadResult,
    Resolved,
    StrategyResult,
    TermResult,
    TierMemory,
)
from zerocalc.specs.job import SECTION_WORDS
from zerocalc.strategies import STRATEGIES, strategy_named
from zerocalc.units import MAX_BYTES, ceil_div

if TYPE_CHECKING:
    from zerocalc.results.time import Timing
    from zerocalc.specs.job import Job

NEGLIGIBLE = 20
"""A part smaller than one in so many of the rest no longer matters."""
ALWAYS_EXCLUDED = "CUDA context, communication buffers and allocator fragmentation (use --reserve)"
STATES_ONLY = (
    "activations, logits and temporaries (give --micro-batch and --seq-len with a model whose shape is known)"
)


def phases_of(terms: Iterable[Term]) -> dict[str, int]:
    """Live bytes per phase, in the order of a step."""
    totals: dict[str, int] = {}
    for term in terms:
        held = term.bytes
        for phase in term.phases:
            totals[phase] = totals.get(phase, 0) + held
    order = [*PHASES, *(phase for phase in totals if phase not in PHASES)]
    return {phase: totals[phase] for phase in order if phase in totals}


def peak_of(phases: dict[str, int]) -> tuple[str, int]:
    """The largest phase (the first of equals) and its bytes."""
    if not phases:
        return "at_rest", 0
    phase = max(phases, key=lambda name: phases[name])
    return phase, phases[phase]


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
    return max(classes, key=lambda item: peak_of(phases_of(t for t in item[1].terms if t.tier == "gpu"))[1])


def peak_bytes(job: Job) -> int:
    """Bytes at the peak on the GPU of the rank that holds most."""
    _, plan = heaviest(plans(job))
    return peak_of(phases_of(term for term in plan.terms if term.tier == "gpu"))[1]


def overfull(job: Job) -> Tier | None:
    """The first memory that the job does not fit, `gpu`, `cpu` or `nvme`; None where it fits all whose size is known."""
    _, plan = heaviest(plans(job))
    machine = job.machine
    if machine.capacity_bytes is not None:
        room = machine.capacity_bytes - machine.reserve_bytes
        if _tier_peak(plan, "gpu") > room:
            return "gpu"
    tiers: tuple[tuple[Tier, int | None], ...] = (
        ("cpu", machine.host_memory_bytes),
        ("nvme", machine.nvme_memory_bytes),
    )
    for tier, capacity in tiers:
        held = _on_node(job, _tier_peak(plan, tier))
        if capacity is not None and held is not None and held > capacity:
            return tier
    return None


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
    gpu = _gpu_memory(view, plan)
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
        memory=Memory(
            gpu=gpu,
            cpu=_tier_memory(job, plan, "cpu", machine.host_memory_bytes),
            nvme=_tier_memory(job, plan, "nvme", machine.nvme_memory_bytes),
        ),
        savings_factor=_savings(job, gpu.model_states_bytes),
        communication=_communication(plan),
        fits=None if headroom is None else headroom >= 0,
        capacity_bytes=machine.capacity_bytes,
        reserve_bytes=machine.reserve_bytes,
        headroom_bytes=headroom,
        binding=_binding(gpu),
        time=_time(view, plan),
    )
    return result, plan


def estimate(job: Job) -> Estimates:
    """One configuration in full: every term, phase, tier and collective.

    Raises UsageError where the strategy cannot do what is asked, SpecError beyond the supported bounds.
    """
    result, plan = evaluate(job)
    return Estimates(
        kind="estimate",
        request=request_of(job),
        results=[result],
        assumptions=[*job.assumptions, *plan.assumptions],
        excluded=excluded_of(plan),
        warnings=[*job.warnings, *plan.warnings],
    )


def excluded_of(plan: Plan) -> list[str]:
    """What the answer does not count."""
    counted = any(term.name.startswith("activation") for term in plan.terms)
    return [*plan.excluded, *([] if counted else [STATES_ONLY]), ALWAYS_EXCLUDED]


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


def bounded(what: str, amount: int) -> int:
    """An amount of bytes, which must stay below 2^63. Raises SpecError naming what is too large."""
    if amount > MAX_BYTES:
        raise SpecError(f"{what}: {amount:,} bytes is beyond the supported 2^63")
    return amount


def _term_result(term: Term) -> TermResult:
    return TermResult(
        name=term.name,
        state=term.state,
        part=term.part,
        bytes=bounded(term.name, term.bytes),
        sharded_over=int(term.sharded_over),
        phases=list(term.phases),
        formula=term.amount.expression,
        inputs=term.amount.inputs,
        source=term.amount.source,
    )


def _gpu_memory(view: RankView, plan: Plan) -> GpuMemory:
    terms = [term for term in plan.terms if term.tier == "gpu"]
    phases = phases_of(terms)
    phase, peak = peak_of(phases)
    states = [term for term in terms if term.state is not None]
    name = view.strategy.name
    return GpuMemory(
        model_states_bytes=bounded(f"{name}, model states", sum(term.bytes for term in states)),
        peak_bytes=bounded(f"{name}, the peak", peak),
        peak_phase=phase,
        floor_bytes=sum(term.bytes for term in states if not term.falls),
        phases=phases,
        terms=[_term_result(term) for term in terms],
        **_split(view.job, [term for term in terms if phase in term.phases]),
    )


def _split(job: Job, live: list[Term]) -> dict[str, Any]:
    """The peak as a constant and a part that falls with N_d, and the N_d from which the latter no longer matters."""
    falling = sum(term.bytes for term in live if term.falls)
    constant = sum(term.bytes for term in live) - falling
    degree = job.parallelism.data_parallel_size
    enough = max(1, ceil_div(falling * degree * NEGLIGIBLE, constant)) if constant else None
    return {"constant_bytes": constant, "falling_bytes": falling, "enough_data_parallel_size": enough}


def _tier_memory(job: Job, plan: Plan, tier: str, capacity: int | None) -> TierMemory:
    terms = [term for term in plan.terms if term.tier == tier]
    phases = phases_of(terms)
    _, peak = peak_of(phases)
    on_node = _on_node(job, peak)
    return TierMemory(
        bytes_per_rank=bounded(f"{tier} of one rank", peak),
        bytes_per_node=None if on_node is None else bounded(f"{tier} of one node", on_node),
        capacity_bytes=capacity,
        fits=None if on_node is None or capacity is None else on_node <= capacity,
        phases=phases,
        terms=[_term_result(term) for term in terms],
    )


def _tier_peak(plan: Plan, tier: Tier) -> int:
    """Bytes of one rank at the peak of a tier."""
    return peak_of(phases_of(term for term in plan.terms if term.tier == tier))[1]


def _on_node(job: Job, per_rank: int) -> int | None:
    """Bytes of all ranks of one node, when it is known how many there are."""
    per_node = job.parallelism.gpus_per_node
    return None if per_node is None else per_rank * min(per_node, job.parallelism.world_size)


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


def _collective_result(row: Collective) -> CollectiveResult:
    return CollectiveResult(
        op=row.op,
        tensor=row.tensor,
        dtype=row.dtype,
        part=row.part,
        phase=row.phase,
        group=row.group,
        group_size=row.group_size,
        count=row.count,
        full_bytes=bounded(row.op, row.full_bytes),
        sent_bytes=row.sent_bytes,
        volume_params=float(row.volume_params),
        inter_node_volume_params=float(row.inter_node_volume_params),
        formula=row.sent.expression,
        inputs=row.sent.inputs,
        source=row.sent.source,
    )


def _communication(plan: Plan) -> Communication:
    moved = dict.fromkeys(("to_host", "from_host", "read", "write"), 0)
    for row in plan.traffic:
        moved[row.direction] = bounded(f"{row.link} traffic", moved[row.direction] + row.bytes)
    volume = sum(row.volume_params for row in plan.collectives)
    return Communication(
        volume_params=float(volume),
        volume_ratio_to_ddp=float(volume) / 2,
        inter_node_volume_params=float(sum(row.inter_node_volume_params for row in plan.collectives)),
        sent_bytes_per_rank=bounded("sent in one step", sum(row.sent_bytes for row in plan.collectives)),
        collectives=[_collective_result(row) for row in plan.collectives],
        links=Links(
            host=HostLink(to_host_bytes=moved["to_host"], from_host_bytes=moved["from_host"]),
            nvme=NvmeLink(read_bytes=moved["read"], write_bytes=moved["write"]),
        ),
    )


def _time(view: RankView, plan: Plan) -> Timing | None:
    """Bounds of one step; the timing model loads only when there are rates to time with."""
    if view.job.speed is None:
        return None
    from zerocalc.timing import step_time

    return step_time(view, plan)


def _binding(gpu: GpuMemory) -> str | None:
    """The largest term at the peak, its parts together."""
    by_name: dict[str, int] = {}
    for term in gpu.terms:
        if gpu.peak_phase in term.phases:
            by_name[term.name] = by_name.get(term.name, 0) + term.bytes
    return max(by_name, key=lambda name: by_name[name]) if by_name else None
