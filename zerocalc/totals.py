"""What a framework's terms add up to: memory by tier and phase, traffic. Every total is a sum made here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from zerocalc.errors import SpecError
from zerocalc.frameworks.terms import PHASES, Collective, Plan, Term, Tier
from zerocalc.results import (
    CollectiveResult,
    Communication,
    GpuMemory,
    HostLink,
    Links,
    NvmeLink,
    TermResult,
    TierMemory,
)
from zerocalc.units import MAX_BYTES, ceil_div

if TYPE_CHECKING:
    from zerocalc.rank import RankView
    from zerocalc.specs.job import Job

NEGLIGIBLE = 20
"""A part smaller than one in so many of the rest no longer matters."""


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


def tier_peak(plan: Plan, tier: Tier) -> int:
    """Bytes of one rank at the peak of a tier."""
    return peak_of(phases_of(term for term in plan.terms if term.tier == tier))[1]


def on_node(job: Job, plans: Iterable[Plan], tier: Tier) -> int | None:
    """Bytes of a tier on the node that holds most, when it is known how many GPUs a node has.

    Its ranks are taken to be of one class, the one that holds most there: so it is where a pipeline stage fills whole
    nodes, and no node holds more where it does not.
    """
    per_node = job.parallelism.gpus_per_node
    if per_node is None:
        return None
    most = max(bounded(f"{tier} of one rank", tier_peak(plan, tier)) for plan in plans)
    return bounded(f"{tier} of one node", most * min(per_node, job.parallelism.world_size))


def bounded(what: str, amount: int) -> int:
    """An amount of bytes, which must stay below 2^63. Raises SpecError naming what is too large."""
    if amount > MAX_BYTES:
        raise SpecError(f"{what}: {amount:,} bytes is beyond the supported 2^63")
    return amount


def gpu_memory(view: RankView, plan: Plan) -> GpuMemory:
    """What one rank holds on its GPU, term by term."""
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


def tier_memory(plan: Plan, tier: Tier, *, node_bytes: int | None, capacity: int | None) -> TierMemory:
    """What one rank, and one node, holds on the host or on NVMe."""
    terms = [term for term in plan.terms if term.tier == tier]
    phases = phases_of(terms)
    _, peak = peak_of(phases)
    return TierMemory(
        bytes_per_rank=bounded(f"{tier} of one rank", peak),
        bytes_per_node=node_bytes,
        capacity_bytes=capacity,
        fits=None if node_bytes is None or capacity is None else node_bytes <= capacity,
        phases=phases,
        terms=[_term_result(term) for term in terms],
    )


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


def communication(plan: Plan) -> Communication:
    """What crosses the wire in one optimizer step."""
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


def binding_term(gpu: GpuMemory) -> str | None:
    """The largest term at the peak, its parts together."""
    by_name: dict[str, int] = {}
    for term in gpu.terms:
        if gpu.peak_phase in term.phases:
            by_name[term.name] = by_name.get(term.name, 0) + term.bytes
    return max(by_name, key=lambda name: by_name[name]) if by_name else None
