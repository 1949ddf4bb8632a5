"""`explain offload`: the papers' own tables about host and NVMe, for one job.

ZeRO-Offload: what may leave the GPU, what each way to do it moves, and the tokens that hide it. ZeRO-Infinity: the
memory of its transformer, arithmetic intensities and the efficiency they allow, and the rate of all nodes together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from zerocalc.evaluate import evaluate, inapplicable, request_of
from zerocalc.formulas import offload as off
from zerocalc.formulas.registry import Applied, apply
from zerocalc.questions.lines import line_of
from zerocalc.rates import host_rate, nvme_rates, ranks_per_node
from zerocalc.results.explanation import ExplainedLine, Explanation

if TYPE_CHECKING:
    from zerocalc.specs.job import Job

LEAST_BYTES = 4
"""ZeRO-Offload's least traffic per parameter: 16-bit gradients down, 16-bit parameters up."""
TARGETS = (0.5, 0.9)
"""Shares of peak for which the bandwidth they need is given, as ZeRO-Infinity's section 4.2 asks."""
LAYERS_PER_CHECKPOINT = 1


def explain_offload(job: Job) -> Explanation:
    """Everything the job says enough for; rates, a batch and the papers' LxHxA each add their lines."""
    lines = [line for lister in LISTERS for line in lister(job)]
    assumptions = ["what is kept, moved and hidden is that of one GPU alone: N_d ranks share it"]
    if any(line.name.startswith("tokens_to_hide") for line in lines):
        assumptions.append(
            "tokens that hide the traffic are derived from its least, 4 bytes per parameter; the paper prints no number"
        )
    return Explanation(
        kind="explain",
        quantity="offload",
        request=request_of(job),
        lines=lines,
        totals={},
        assumptions=[*job.assumptions, *assumptions],
        warnings=list(job.warnings),
    )


def _line(job: Job, amount: Applied, *, name: str, part: str, tier: str = "") -> ExplainedLine:
    return line_of(job, amount, name=name, part=part, tier=tier, unit=amount.entry.unit)


def _placements(job: Job) -> Iterator[ExplainedLine]:
    for name, row in off.OFFLOAD_PLACEMENTS.items():
        kept = apply(
            off.offload_gpu_bytes, num_params=job.model.num_params, bytes_per_param=row.gpu_bytes_per_param
        )
        yield _line(job, kept, name="kept_on_gpu", part=name, tier="gpu")


def _traffic(job: Job) -> Iterator[ExplainedLine]:
    for name, row in off.OFFLOAD_TRAFFIC.items():
        moved = apply(
            off.offload_traffic_bytes,
            num_params=job.model.num_params,
            ranks=1,
            bytes_per_micro_step=row.to_host_per_micro_step + row.from_host_per_micro_step,
            micro_steps=job.workload.grad_accum,
            bytes_per_step=row.to_host_per_step + row.from_host_per_step,
        )
        yield _line(job, moved, name="moved_per_step", part=name, tier="host")


def _hiding(job: Job) -> Iterator[ExplainedLine]:
    """Tokens per GPU and step behind which the least traffic, and the host's update, disappear."""
    speed = job.speed
    if speed is None or speed.peak_flops_per_s is None:
        return
    reached = speed.peak_flops_per_s * speed.mfu
    for part, flops in (("no recomputation", 6), ("full recomputation", 8)):
        work = {"flops_per_s": reached, "flops_per_param_token": flops}
        if rate := host_rate(job):
            tokens = apply(
                off.offload_hiding_tokens,
                bytes_per_param=LEAST_BYTES,
                bandwidth_bytes_per_s=rate,
                **work,
            )
            yield _line(job, tokens, name="tokens_to_hide_traffic", part=part, tier="host")
        if speed.cpu_adam_params_per_s:
            tokens = apply(off.cpu_adam_hiding_tokens, params_per_s=speed.cpu_adam_params_per_s, **work)
            yield _line(job, tokens, name="tokens_to_hide_update", part=part, tier="host")


def _infinity_memory(job: Job) -> Iterator[ExplainedLine]:
    """Equations 1 to 5, which count the papers' own transformer."""
    architecture, work = job.model.architecture, job.workload
    if architecture is None or architecture.model_type != "paper_transformer":
        return
    layers = next(unit for unit in architecture.layout.units if unit.is_layer)
    shape = {"num_layers": layers.count, "hidden_size": layers.tensors[0].shape[-1]}
    yield _line(job, apply(off.infinity_state_bytes, **shape), name="model_states", part="zero-infinity")
    operator = apply(off.infinity_state_working_bytes, hidden_size=shape["hidden_size"])
    yield _line(job, operator, name="model_state_working_memory", part="zero-infinity", tier="gpu")
    if work.micro_batch is None or work.seq_len is None:
        return
    batch = {"seq_len": work.seq_len, "layers_per_checkpoint": LAYERS_PER_CHECKPOINT}
    kept = apply(
        off.infinity_checkpoint_bytes, batch_size=work.micro_batch * ranks_per_node(job), **shape, **batch
    )
    yield _line(job, kept, name="activation_checkpoints", part="zero-infinity", tier="node")
    if architecture.dimensions is not None:
        working = apply(
            off.infinity_activation_working_bytes,
            batch_size=work.micro_batch,
            hidden_size=shape["hidden_size"],
            num_heads=architecture.dimensions.num_heads,
            **batch,
        )
        yield _line(job, working, name="activation_working_memory", part="zero-infinity", tier="gpu")


def _intensities(job: Job) -> Iterator[tuple[str, Applied]]:
    """FLOPs per byte of each kind of traffic, by what the job says."""
    work, architecture = job.workload, job.model.architecture
    if work.micro_batch is not None and work.seq_len is not None:
        batch = {"seq_len": work.seq_len, "batch_size": work.micro_batch}
        yield "params_and_grads", apply(off.params_intensity, **batch)
        yield "optimizer_states", apply(off.optimizer_intensity, **batch)
    if architecture is not None and architecture.dimensions is not None:
        hidden = architecture.dimensions.hidden_size
        yield (
            "activation_checkpoints",
            apply(off.checkpoint_intensity, hidden_size=hidden, layers_per_checkpoint=LAYERS_PER_CHECKPOINT),
        )


def _efficiency(job: Job) -> Iterator[ExplainedLine]:
    """Equation 6 forwards, at the rates that are known, and backwards, for the bandwidth a target needs."""
    for part, intensity in _intensities(job):
        yield _line(job, intensity, name="arithmetic_intensity", part=part)
        peak = job.speed and job.speed.peak_flops_per_s
        if not job.speed or not peak:
            continue
        common = {"intensity": intensity.value, "peak_flops_per_s": peak}
        for target in TARGETS:
            needed = apply(off.bandwidth_for_efficiency, target_efficiency=target, **common)
            yield _line(job, needed, name=f"bandwidth_for_{target:.0%}", part=part)
        for tier, rate in _shares(job):
            reached = apply(off.efficiency, bandwidth_bytes_per_s=rate, **common)
            yield _line(job, reached, name="efficiency", part=part, tier=tier)


def _shares(job: Job) -> Iterator[tuple[str, float]]:
    """Bytes per second of one GPU to each tier whose rate is known, all GPUs of the node reading at once."""
    if host := host_rate(job):
        yield "cpu", host
    if drives := nvme_rates(job):
        yield "nvme", drives[0]


def _aggregates(job: Job) -> Iterator[ExplainedLine]:
    """Bandwidth-centric partitioning: every rank reads its own part, so that all nodes' links work at once."""
    if (host := host_rate(job)) is None:
        return
    ranks = ranks_per_node(job)
    for tier, share in _shares(job):
        node = apply(
            off.bandwidth_centric_rate,
            ranks_per_node=ranks,
            pcie_share_bytes_per_s=host,
            tier_share_bytes_per_s=share,
        )
        yield _line(job, node, name="bandwidth_of_a_node", part="bandwidth-centric", tier=tier)
        nodes = -(-job.parallelism.world_size // ranks)
        together = apply(off.aggregate_bandwidth, num_nodes=nodes, node_bytes_per_s=node.value)
        yield _line(job, together, name="bandwidth_of_all_nodes", part="bandwidth-centric", tier=tier)


def _delay(job: Job) -> Iterator[ExplainedLine]:
    """ZeRO-Offload's delayed update: the host's runs beside the next step's compute, and the longer of the two is seen."""
    if job.offload.optimizer == "none" or inapplicable(job):
        return
    time = evaluate(job)[0].time
    if time is not None and (update := time.cpu_optimizer_s) is not None:
        delayed = apply(off.delayed_update_s, gpu_s=time.step_s.upper - update, cpu_s=update)
        yield _line(job, delayed, name="step_with_delayed_update", part="upper bound", tier="host")


LISTERS: tuple[Callable[[Job], Iterator[ExplainedLine]], ...] = (
    _placements,
    _traffic,
    _hiding,
    _infinity_memory,
    _efficiency,
    _aggregates,
    _delay,
)
"""What is said, in order; a further table of a paper is one more."""
