"""Bytes become seconds: links, compute, offload, and the bounds between which a step lies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from zerocalc.formulas import offload as off
from zerocalc.formulas import timing as tm
from zerocalc.rates import host_rate, nvme_rates, ranks_per_node
from zerocalc.records import Record
from zerocalc.results.time import Bounds, Compute, LinkTime, Timing, Training
from zerocalc.timing.links import leg_s, offload_uses, wire_uses
from zerocalc.units import ceil_div, largest

if TYPE_CHECKING:
    from zerocalc.frameworks.terms import Plan
    from zerocalc.layout import Kind
    from zerocalc.rank import RankView
    from zerocalc.specs.job import Job, Speed
    from zerocalc.timing.links import Use

SECONDS_PER_HOUR = 3600
ADAM_DRAM_BYTES = 28
"""Gradient, parameter and two moments in fp32 are read, all but the gradient written."""
_MATMUL_KINDS: tuple[Kind, ...] = ("matrix", "head", "router", "shared_expert")


@dataclass(eq=False, repr=False)
class Step(Record):
    """One optimizer step and what its bounds are made of. Every number may be a recorded one (see `sweeps.tape`)."""

    seconds: Bounds
    tokens: int
    """Of all ranks together."""
    tokens_per_s: Bounds
    compute: Compute
    uses: list[Use]
    cpu_optimizer_s: float | None
    bubble_factor: float


def step_of(view: RankView, plan: Plan) -> Step | None:
    """Bound one optimizer step of a rank class; None when the batch or the GPU's rates are not known."""
    job = view.job
    work, speed = job.workload, job.speed
    if work.micro_batch is None or work.seq_len is None or speed is None or speed.peak_flops_per_s is None:
        return None
    compute = _compute(view, speed)
    uses = [*wire_uses(view, plan, speed), *offload_uses(job, plan)]
    adam = _cpu_optimizer_s(view, speed)
    bubble = 1 + (job.parallelism.pp - 1) / work.grad_accum
    waits = [use.seconds.lower for use in uses] + ([] if adam is None else [adam.lower])
    lower = reduce(largest, waits, compute.seconds.lower * bubble)
    upper = compute.seconds.upper * bubble + sum(use.seconds.upper for use in uses)
    upper += 0.0 if adam is None else adam.upper
    tokens = work.micro_batch * work.seq_len * work.grad_accum * job.parallelism.data_parallel_size
    rate = Bounds(
        lower=tm.tokens_per_s(tokens_per_step=tokens, step_s=upper),
        upper=tm.tokens_per_s(tokens_per_step=tokens, step_s=lower),
    )
    update = None if adam is None else adam.upper
    return Step(Bounds(lower=lower, upper=upper), tokens, rate, compute, uses, update, bubble)


def step_time(view: RankView, plan: Plan) -> Timing | None:
    """Everything about one optimizer step's time; None when the batch or the GPU's rates are not known."""
    job, step = view.job, step_of(view, plan)
    if step is None or (speed := job.speed) is None:
        return None
    return Timing(
        step_s=step.seconds,
        compute=step.compute,
        links=[_link_time(use, step.compute, job) for use in step.uses],
        exposed_s=_exposed_s(view, plan, speed),
        untimed_bytes=_moved_bytes(plan) - sum(use.num_bytes for use in step.uses),
        cpu_optimizer_s=step.cpu_optimizer_s,
        bubble_factor=step.bubble_factor,
        upper_over_lower=step.seconds.upper / step.seconds.lower,
        tokens_per_gpu=rank_tokens(job),
        tokens_per_step=step.tokens,
        tokens_per_s=step.tokens_per_s,
        efficiency=dict(_efficiency(view, plan, speed)),
        training=_training(job, step.tokens_per_s),
        origins=dict(speed.origins),
    )


def _moved_bytes(plan: Plan) -> int:
    return sum(row.sent_bytes for row in plan.collectives) + sum(row.bytes for row in plan.traffic)


def rank_tokens(job: Job) -> int:
    """Tokens one rank works on per optimizer step."""
    work = job.workload
    return (work.micro_batch or 0) * ceil_div(work.seq_len or 0, job.parallelism.cp) * work.grad_accum


def matmul_params(view: RankView) -> tuple[int, int]:
    """Parameters of this rank class that multiply every token, experts by their active share: trained and frozen."""
    layout, dims = view.layout, view.dimensions
    if layout.anonymous:
        active = layout.num_params
    else:
        active = layout.num_params_where(*_MATMUL_KINDS)
        experts = layout.num_params_where("expert")
        if dims is not None and dims.num_experts:
            active += experts * dims.experts_per_token // dims.num_experts
        if dims is not None and dims.tied and view.is_last_stage and view.job.parallelism.pp == 1:
            active += ceil_div(dims.vocab_size, view.job.parallelism.tp) * dims.hidden_size
    trained = sum(part.num_params for part in view.parts if part.trainable and part.name != "adapter")
    share = min(trained, layout.num_params)
    frozen = active * (layout.num_params - share) // max(layout.num_params, 1)
    return active - frozen, frozen


def _compute(view: RankView, speed: Speed) -> Compute:
    work, dims = view.job.workload, view.dimensions
    tokens, again = rank_tokens(view.job), int(work.checkpointing == "full")
    trained, frozen = matmul_params(view)
    linear = tm.linear_flops(matmul_params=trained, tokens=tokens, recomputed_forwards=again)
    linear += tm.frozen_linear_flops(matmul_params=frozen, tokens=tokens, recomputed_forwards=again)
    whole = causal = linear
    if dims is not None:
        shape = {
            "num_layers": view.layout.num_layers,
            "num_heads": ceil_div(dims.num_heads, view.job.parallelism.tp),
            "head_dim": dims.head_dim,
            "seq_len": work.seq_len or 0,
            "tokens": tokens,
            "recomputed_forwards": int(work.checkpointing != "none"),
        }
        whole, causal = linear + tm.attention_flops(**shape), linear + tm.causal_attention_flops(**shape)
    peak = speed.peak_flops_per_s or 1.0
    seconds = Bounds(
        lower=tm.compute_s(flops=causal, flops_per_s=peak, utilization=1.0),
        upper=tm.compute_s(flops=whole, flops_per_s=peak, utilization=speed.mfu),
    )
    return Compute(
        flops=whole, causal_flops=causal, peak_flops_per_s=peak, utilization=speed.mfu, seconds=seconds
    )


def _cpu_optimizer_s(view: RankView, speed: Speed) -> Bounds | None:
    """Seconds of the host's update, which the node's ranks share; None when the optimizer is on the GPU.

    At least what its memory needs, where that is known; a rate that was given is no guess and holds for both bounds.
    """
    rate, dram = speed.cpu_adam_params_per_s, speed.dram_bytes_per_s
    if view.job.offload.optimizer == "none" or (rate is None and dram is None):
        return None
    trained = sum(ceil_div(part.num_params, part.shard_ranks) for part in view.parts if part.trainable)
    params = trained * ranks_per_node(view.job)
    usual = 0.0 if rate is None else off.cpu_adam_s(num_params=params, ranks=1, params_per_s=rate)
    if dram is None:
        return Bounds(lower=usual, upper=usual)
    least = off.cpu_adam_roofline_s(
        num_params=params, dram_bytes_per_param=ADAM_DRAM_BYTES, dram_bytes_per_s=dram
    )
    upper = largest(usual, least)
    guessed = speed.origins.get("cpu_adam_params_per_s", "preset:").startswith("preset:")
    return Bounds(lower=least if guessed else upper, upper=upper)


def _link_time(use: Use, compute: Compute, job: Job) -> LinkTime:
    """A link's seconds, and the tokens that hide them: compute grows with tokens, these bytes do not."""
    tokens = rank_tokens(job)
    hide = use.seconds.upper * tokens / compute.seconds.upper if compute.seconds.upper else None
    return LinkTime(
        link=use.link,
        bytes=use.num_bytes,
        seconds=use.seconds,
        bandwidth_bytes_per_s=use.bandwidth,
        tokens_to_hide=hide,
    )


def _exposed_s(view: RankView, plan: Plan, speed: Speed) -> float:
    """The first unit's gather and the last unit's reduction of every micro-step, at the nominal rate."""
    if "params" not in view.strategy.shards or not view.shape_known or speed.link_bytes_per_s is None:
        return 0.0
    share = view.layout.largest_unit / max(view.layout.num_params, 1)
    wanted = {"forward": 0.0, "backward": 0.0}
    for row in plan.collectives:
        first = row.op == "all_gather" and row.phase == "forward"
        last = row.op == "reduce_scatter" and row.phase == "backward"
        if first or last:
            one = int(row.full_bytes / max(view.job.workload.grad_accum, 1) * share)
            seconds = leg_s(view.job, row, one, speed.link_bytes_per_s, speed.network_bytes_per_s)
            wanted[row.phase] += seconds
    return tm.exposed_floor_s(
        first_gather_s=wanted["forward"],
        last_reduce_s=wanted["backward"],
        micro_steps=view.job.workload.grad_accum,
    )


def _efficiency(view: RankView, plan: Plan, speed: Speed) -> Iterator[tuple[str, float]]:
    """ZeRO-Infinity's equation 6 for what is offloaded, each kind of traffic by its own arithmetic intensity."""
    job, peak = view.job, speed.peak_flops_per_s or 1.0
    batch = {"seq_len": job.workload.seq_len or 0, "batch_size": job.workload.micro_batch or 0}
    hidden = 0 if view.dimensions is None else view.dimensions.hidden_size
    checkpoints = "cpu" if any(row.name == "activation_checkpoints" for row in plan.traffic) else "none"
    drives = nvme_rates(job)
    rates = {"cpu": host_rate(job), "nvme": drives and drives[0]}
    for name, tier, intensity in (
        ("params_and_grads", job.offload.params, off.params_intensity(**batch)),
        ("optimizer_states", job.offload.optimizer, off.optimizer_intensity(**batch)),
        (
            "activation_checkpoints",
            checkpoints,
            off.checkpoint_intensity(hidden_size=hidden, layers_per_checkpoint=1),
        ),
    ):
        rate = rates.get(tier)
        if rate:
            yield name, off.efficiency(intensity=intensity, bandwidth_bytes_per_s=rate, peak_flops_per_s=peak)


def _training(job: Job, rate: Bounds) -> Training | None:
    """The whole run, when it is known how many tokens it sees."""
    tokens = job.speed.tokens if job.speed else None
    if tokens is None:
        return None
    seconds = Bounds(
        lower=tm.training_s(total_tokens=tokens, tokens_per_s=rate.upper),
        upper=tm.training_s(total_tokens=tokens, tokens_per_s=rate.lower),
    )
    hours = [
        tm.gpu_hours(num_gpus=job.parallelism.world_size, seconds=bound, seconds_per_hour=SECONDS_PER_HOUR)
        for bound in (seconds.lower, seconds.upper)
    ]
    return Training(tokens=tokens, seconds=seconds, gpu_hours=Bounds(lower=hours[0], upper=hours[1]))
