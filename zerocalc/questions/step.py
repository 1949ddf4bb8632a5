"""`explain step`: the seconds of one optimizer step, from FLOPs and bytes to the two bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from zerocalc.errors import UsageError
from zerocalc.evaluate import evaluate, heaviest, inapplicable, plans, request_of
from zerocalc.formulas import timing as tm
from zerocalc.formulas.registry import Applied, apply
from zerocalc.questions.lines import line_of
from zerocalc.rates import ranks_per_node
from zerocalc.results.explanation import ExplainedLine, Explanation
from zerocalc.strategies import LEGS
from zerocalc.timing import matmul_params, rank_tokens
from zerocalc.timing.links import is_inside
from zerocalc.units import ceil_div

if TYPE_CHECKING:
    from zerocalc.frameworks.terms import Collective, Plan
    from zerocalc.rank import RankView
    from zerocalc.results.time import Timing
    from zerocalc.specs.job import Job, Speed


def explain_step(job: Job, *, strategies: Sequence[str]) -> Explanation:
    """Each strategy's compute, its collectives by the flat ring and in two hops, and the bounds they make.

    Raises UsageError where no step can be timed: without a batch, or without the GPU's rates.
    """
    lines: list[ExplainedLine] = []
    for strategy in strategies:
        variant = job.model_copy(update={"strategy": strategy})
        if inapplicable(variant):
            continue
        time = evaluate(variant)[0].time
        if time is None or variant.speed is None:
            raise UsageError(
                "a step's seconds need a batch and the GPU's rates",
                hint="give --micro-batch, --seq-len and a named --gpu or --node",
            )
        view, plan = heaviest(plans(variant))
        lines += _compute(view, variant.speed)
        lines += _wire(variant, plan, variant.speed)
        lines += _bounds(variant, time)
    said = "a row's seconds are at the nominal rates; the upper bound takes measured ones and adds each hop's latency"
    return Explanation(
        kind="explain",
        quantity="step",
        request=request_of(job),
        lines=lines,
        totals={},
        assumptions=[*job.assumptions, said],
        warnings=list(job.warnings),
    )


def _line(job: Job, amount: Applied, name: str, part: str, tier: str) -> ExplainedLine:
    return line_of(job, amount, name=name, part=part, tier=tier, unit=amount.entry.unit)


def _compute(view: RankView, speed: Speed) -> Iterator[ExplainedLine]:
    """FLOPs of one rank in one step, and their seconds at peak and at the assumed share of it."""
    job, dims, work = view.job, view.dimensions, view.job.workload
    trained, frozen = matmul_params(view)
    shared = {"tokens": rank_tokens(job), "recomputed_forwards": int(work.checkpointing == "full")}
    linear = apply(tm.linear_flops, matmul_params=trained, **shared)
    yield _line(job, linear, "linear", "trained", "compute")
    counted = [linear.value, linear.value]
    if frozen:
        still = apply(tm.frozen_linear_flops, matmul_params=frozen, **shared)
        yield _line(job, still, "linear", "frozen", "compute")
        counted = [flops + still.value for flops in counted]
    if dims is not None:
        shape = {
            "num_layers": view.layout.num_layers,
            "num_heads": ceil_div(dims.num_heads, job.parallelism.tp),
            "head_dim": dims.head_dim,
            "seq_len": work.seq_len or 0,
            "tokens": shared["tokens"],
            "recomputed_forwards": int(work.checkpointing != "none"),
        }
        kinds = ((tm.causal_attention_flops, "causal"), (tm.attention_flops, "whole square"))
        for index, (formula, part) in enumerate(kinds):
            attention = apply(formula, **shape)
            yield _line(job, attention, "attention", part, "compute")
            counted[index] += attention.value
    for flops, share, part in zip(counted, (1.0, speed.mfu), ("least", "most"), strict=True):
        rate = {"flops_per_s": speed.peak_flops_per_s or 1.0, "utilization": share}
        yield _line(job, apply(tm.compute_s, flops=flops, **rate), "compute", part, "compute")


def _wire(job: Job, plan: Plan, speed: Speed) -> Iterator[ExplainedLine]:
    """Seconds of one leg of every collective, for each way it can be done."""
    for row in plan.collectives:
        if row.group_size > 1 and speed.link_bytes_per_s is not None:
            legs = LEGS.get(row.op, 1)
            name = f"{row.op}({row.tensor}), {'each of 2 legs' if legs == 2 else 'one leg'}"
            for part, seconds in _ways(job, row, speed):
                yield _line(job, seconds, name, part, row.phase)


def _ways(job: Job, row: Collective, speed: Speed) -> Iterator[tuple[str, Applied]]:
    inside, node = speed.link_bytes_per_s or 1.0, speed.network_bytes_per_s
    whole = {"full_bytes": row.full_bytes, "ranks": row.group_size}
    if is_inside(job, row):
        yield "inside the node", apply(tm.ring_leg_s, **whole, latency_s=0.0, bandwidth_bytes_per_s=inside)
        return
    if node is None:
        return
    per_node = ranks_per_node(job)
    crossing = row.group in {"replica", "across_nodes"}
    flat = {"node_bandwidth_bytes_per_s": inside, "nics_per_node": 1}
    nic = node / per_node if crossing else node
    yield "flat ring", apply(tm.flat_ring_leg_s, **whole, **flat, nic_bandwidth_bytes_per_s=nic)
    if not crossing and row.group_size % per_node == 0:
        yield (
            "two hops",
            apply(
                tm.hierarchical_leg_s,
                full_bytes=row.full_bytes,
                ranks_per_node=per_node,
                num_nodes=row.group_size // per_node,
                node_bandwidth_bytes_per_s=inside,
                network_bytes_per_s=node,
            ),
        )


def _bounds(job: Job, time: Timing) -> Iterator[ExplainedLine]:
    """The step: the larger of compute and communication at best, their sum at worst."""
    update = time.cpu_optimizer_s or 0.0
    slowest = max([0.0, *(link.seconds.lower for link in time.links)])
    least = apply(
        tm.lower_bound_s,
        peak_compute_s=time.compute.seconds.lower * time.bubble_factor,
        communication_s=slowest,
    )
    most = apply(
        tm.upper_bound_s,
        compute_s=time.compute.seconds.upper * time.bubble_factor,
        communication_s=sum(link.seconds.upper for link in time.links) + update,
    )
    yield _line(job, least, "step", "at least", "step")
    yield _line(job, most, "step", "at most", "step")
