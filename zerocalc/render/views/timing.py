"""Seconds, always as bounds: what a step takes at least and at most, what each link adds, where each rate is from."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from zerocalc.render import numbers
from zerocalc.render.document import Block, Cell, Column, Facts, Note, Table, cells
from zerocalc.render.views.common import NONE, asked, label_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from zerocalc.results import Estimates, Resolved, StrategyResult
    from zerocalc.results.time import Compute, Crossover, LinkTime, Timing, Training

LINKS = {"intra_node": "In node", "inter_node": "Across nodes", "host": "PCIe", "nvme": "NVMe"}
SECONDS_PER_DAY = 86400
UNTIMED = (
    "traffic over links whose rates are not known is in no bound; give --node, --busbw, --network, "
    "--host-bandwidth or --nvme-bandwidth"
)


class Rate(NamedTuple):
    """How a rate is named, scaled and measured for a reader."""

    label: str
    scale: float
    unit: str


RATES = {
    "peak_flops_per_s": Rate("compute at peak", 1e12, "TFLOP/s"),
    "mfu": Rate("utilization, upper bound", 0.01, "% of peak"),
    "link_bytes_per_s": Rate("links in the node, nominal", 1e9, "GB/s per GPU"),
    "ring_bytes_per_s": Rate("ring in the node, measured", 1e9, "GB/s per GPU"),
    "network_bytes_per_s": Rate("network", 1e9, "GB/s per node"),
    "network_efficiency": Rate("share of the network reached", 0.01, "%"),
    "host_bytes_per_s": Rate("PCIe", 1e9, "GB/s per GPU"),
    "host_node_bytes_per_s": Rate("PCIe, all GPUs together", 1e9, "GB/s per node"),
    "nvme_bytes_per_s": Rate("NVMe", 1e9, "GB/s per node"),
    "nvme_write_bytes_per_s": Rate("NVMe writing", 1e9, "GB/s per node"),
    "dram_bytes_per_s": Rate("host memory", 1e9, "GB/s per node"),
    "cpu_adam_params_per_s": Rate("optimizer on the CPUs", 1e9, "billion parameters/s per node"),
    "latency_s": Rate("one hop of a collective", 1e-6, "microseconds"),
}


def compared(rows: list[StrategyResult]) -> Iterator[Block]:
    """The bounds of every strategy's step side by side; nothing when none is timed."""
    timed = [(row, row.time) for row in rows if row.time is not None]
    if not timed:
        return
    several = len({row.framework for row, _ in timed}) > 1
    used = {link.link for _, time in timed for link in time.links}
    links = [name for name in LINKS if name in used]
    updates = any(time.cpu_optimizer_s is not None for _, time in timed)
    columns = [
        *(Column(name, right=False) for name in ["Strategy", *(["Framework"] if several else [])]),
        *map(Column, ["Step", "Spread", "Compute", *(LINKS[name] for name in links)]),
        *([Column("CPU step")] if updates else []),
        *map(Column, ["Exposed", "Tokens/s"]),
    ]
    body = tuple(
        cells(
            [
                Cell(label_of(row.strategy), "strong"),
                *([row.framework] if several else []),
                *_parts(time, links, updates=updates),
            ]
        )
        for row, time in timed
    )
    yield Table("Time of one optimizer step; seconds, lower–upper bound", tuple(columns), body)
    yield _bounds_note(timed[0][1])
    if any(time.untimed_bytes for _, time in timed):
        yield Note(UNTIMED, "Warning", "warning")


def _parts(time: Timing, links: list[str], *, updates: bool) -> list[str | Cell]:
    sent = {link.link: numbers.seconds_between(link.seconds) for link in time.links}
    cpu = NONE if time.cpu_optimizer_s is None else numbers.seconds(time.cpu_optimizer_s)
    return [
        Cell(numbers.seconds_between(time.step_s), "strong"),
        f"{time.upper_over_lower:.3g}×",
        numbers.seconds_between(time.compute.seconds),
        *(sent.get(name, NONE) for name in links),
        *([cpu] if updates else []),
        numbers.seconds(time.exposed_s),
        numbers.between(time.tokens_per_s, numbers.short),
    ]


def _bounds_note(time: Timing) -> Note:
    return Note(
        "at least: compute at peak, everything overlapped; at most: compute at "
        f"{_percent(time.compute.utilization)} of peak ({time.origins.get('mfu', 'default')}), nothing overlapped",
        "Bounds",
    )


def _percent(share: float) -> str:
    return f"{numbers.short(100 * share)}%"


def crossed(rows: list[Crossover]) -> Iterator[Note]:
    """What the memory that a strategy saves costs in time, and from which batch on it is free."""
    several = len({row.framework for row in rows}) > 1
    for row in rows:
        name = f"{label_of(row.strategy)} ({row.framework})" if several else label_of(row.strategy)
        differences = row.lower_difference_s, row.upper_difference_s
        bounds = " to ".join(dict.fromkeys(_signed(difference) for difference in differences))
        text = f"{bounds} s a step against {label_of(row.against)}"
        if row.tokens_to_hide is not None:
            text += f"; compute hides the wire from {numbers.tokens(row.tokens_to_hide)} tokens per GPU and step on"
        yield Note(text, name)


def _signed(duration: float) -> str:
    return f"{'+' if duration >= 0 else numbers.MINUS}{numbers.seconds(abs(duration))}"


def _hidden_from(tokens: float, time: Timing) -> str:
    there = "enough" if time.tokens_per_gpu >= tokens else "too few"
    return (
        f"hidden from {numbers.tokens(tokens)} tokens per GPU and step on "
        f"({numbers.count(time.tokens_per_gpu)} here, {there})"
    )


def in_full(result: Estimates, row: StrategyResult, time: Timing, units: str) -> Iterator[Block]:
    """One step's parts: compute, every link, what cannot be hidden, and the whole run where its tokens are given."""
    yield _parts_table(time, units)
    yield _bounds_note(time)
    yield _work(time.compute)
    if time.untimed_bytes:
        yield Note(f"{numbers.with_unit(time.untimed_bytes, units)} per GPU: {UNTIMED}", "Warning", "warning")
    for link in time.links:
        if link.tokens_to_hide is not None:
            label = f"{label_of(row.strategy)}'s traffic {_where(link)}"
            yield Note(_hidden_from(link.tokens_to_hide, time), label)
    yield Note(
        f"{numbers.seconds(time.exposed_s)} s that nothing can hide: the first gather and the last reduction",
        "Exposed",
    )
    yield from _further(time)
    yield Note(
        f"{numbers.between(time.tokens_per_s, numbers.short)} tokens/s, "
        f"{numbers.count(time.tokens_per_step)} tokens a step",
        "Speed",
    )
    if time.training is not None:
        yield _training(time.training)
    yield rates(result.request, time)


def _where(link: LinkTime) -> str:
    return {"intra_node": "inside the node", "inter_node": "across nodes"}.get(
        link.link, f"over {LINKS[link.link]}"
    )


def _parts_table(time: Timing, units: str) -> Table:
    sizes = numbers.column([link.bytes for link in time.links], units)
    body = [cells([Cell("Compute"), NONE, NONE, numbers.seconds_between(time.compute.seconds), NONE])]
    for link, size in zip(time.links, sizes, strict=True):
        hidden = NONE if link.tokens_to_hide is None else numbers.tokens(link.tokens_to_hide)
        rate = numbers.between(link.bandwidth_bytes_per_s, numbers.rate)
        body.append(cells([LINKS[link.link], size, rate, numbers.seconds_between(link.seconds), hidden]))
    if time.cpu_optimizer_s is not None:
        body.append(cells(["CPU optimizer", NONE, NONE, numbers.seconds(time.cpu_optimizer_s), NONE]))
    step = Cell(numbers.seconds_between(time.step_s), "strong")
    body.append(cells([Cell("Step", "strong"), "", "", step, ""]))
    columns = (Column("Part", right=False), *map(Column, (units, "GB/s", "Seconds", "Hidden from")))
    title = f"Time of one optimizer step; seconds, lower–upper bound; {units} per GPU; tokens per GPU that hide it"
    return Table(title, columns, tuple(body), total=True)


def _work(compute: Compute) -> Note:
    lower, upper = (numbers.short(flops / 1e12) for flops in (compute.causal_flops, compute.flops))
    return Note(
        f"{lower}–{upper} TFLOP per GPU (attention's triangle–whole square) at {_flops(compute.peak_flops_per_s)}"
        f" peak, {_percent(compute.utilization)} of it for the upper bound",
        "Compute",
    )


def _flops(flops_per_s: float) -> str:
    return f"{numbers.short(flops_per_s / 1e12)} TFLOP/s"


def _further(time: Timing) -> Iterator[Note]:
    """What pipelines and offload add."""
    if time.bubble_factor != 1:
        yield Note(
            f"{numbers.short(time.bubble_factor)}× the compute, as stages wait for each other", "Pipeline"
        )
    for name, share in time.efficiency.items():
        text = f"{_percent(share)} of peak where the traffic of {name.replace('_', ' ')} is not overlapped"
        yield Note(text, "Offload")


def rates(request: Mapping[str, Resolved], time: Timing) -> Facts:
    """Every rate behind the seconds, and where it is from."""
    found = ((rate, asked(request, name), time.origins.get(name)) for name, rate in RATES.items())
    rows = tuple(
        (rate.label, f"{numbers.short(value / rate.scale)} {rate.unit} ({origin or 'default'})")
        for rate, value, origin in found
        if value is not None and origin is not None
    )
    return Facts("Rates", rows)


def _training(run: Training) -> Note:
    days = numbers.between(run.seconds, lambda bound: numbers.short(bound / SECONDS_PER_DAY))
    hours = numbers.between(run.gpu_hours, numbers.short)
    return Note(f"{numbers.count(run.tokens)} tokens take {days} days, {hours} GPU-hours", "Training")
