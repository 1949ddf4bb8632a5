"""Rows about links: measured rates, and which of them to use for a GPU."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from zerocalc.presets.rows import BANDWIDTH, FLOPS, TIME, Figure, Preset, Row, rate, row_of


class Link(NamedTuple):
    """One measured rate. `bytes_per_s` is None where the figure is no bandwidth; a range counts by its lower end."""

    id: str
    kind: str
    op: str
    hardware: str
    gpu: str | None
    num_gpus: int | None
    node: str | None
    num_nodes: int | None
    conditions: str
    figure: Figure
    bytes_per_s: float | None
    peak_bytes_per_s: float | None
    nic_total_bytes_per_s: float | None
    num_params: int | None
    params_per_s: float | None
    notes: str
    origin: str


def _amount(row: Row, key: str, unit: str) -> float | None:
    """Take an optional plain number that stands in `unit`, in base units."""
    value = row.number(key)
    return None if value is None else float(Figure(value, unit, "", "").exact)


def read_link(preset: Preset) -> Link:
    """Read one measurement's row."""
    row = row_of(preset)
    figure = row.figure("figure")
    if figure is None:
        raise row.error("figure", "is missing")
    is_rate = figure.unit in BANDWIDTH and not isinstance(figure.value, str)
    num_params = row.integer("params", 0) or None
    params_per_s = _amount(row, "params_per_s", "")
    if (
        params_per_s is None
        and num_params
        and figure.unit == "s"
        and figure.value
        and not isinstance(figure.value, str)
    ):
        params_per_s = float(num_params / figure.exact)
    peak = _amount(row, "peak_per_direction", figure.unit)
    link = Link(
        id=preset.id,
        kind=row.text("kind"),
        op=row.text("op", ""),
        hardware=row.text("hardware", ""),
        gpu=row.text("gpu", "") or None,
        num_gpus=row.integer("num_gpus", 0) or None,
        node=row.text("node", "") or None,
        num_nodes=row.integer("num_nodes", 0) or None,
        conditions=row.text("conditions", ""),
        figure=figure,
        bytes_per_s=float(figure.exact) if is_rate else None,
        peak_bytes_per_s=peak if is_rate else None,
        nic_total_bytes_per_s=_amount(row, "nic_total", "Gb/s"),
        num_params=num_params,
        params_per_s=params_per_s,
        notes=row.text("notes", ""),
        origin=preset.origin,
    )
    row.done()
    return link


class LinkRates(NamedTuple):
    """Which rates to use for a GPU: per GPU and direction, None where nothing is published.

    `ring_bytes_per_s` is the bus bandwidth of a ring inside the node, as nccl-tests prints it; `latency_s` is per
    ring step; `network_efficiency` is what of a NIC's rate a collective reaches; `cpu_adam_params_per_s` per host.
    """

    id: str
    ring_bytes_per_s: float | None
    host_to_device_bytes_per_s: float | None
    device_to_host_bytes_per_s: float | None
    matmul_flops_per_s: float | None
    latency_s: float | None
    network_efficiency: float | None
    cpu_adam_params_per_s: float | None
    figures: dict[str, Figure]
    origin: str


RATE_FIGURES = {
    **dict.fromkeys(("ring", "reduce_scatter", "host_to_device", "device_to_host"), BANDWIDTH),
    "matmul": FLOPS,
    "latency": TIME,
    "network_efficiency": {"ratio": Fraction(1)},
    "cpu_adam": {"params/s": Fraction(1)},
}


def read_rates(preset: Preset, default: Preset | None = None) -> LinkRates:
    """Read the rates of a GPU generation, with the figures of `default` where the row has none."""
    row = row_of(preset)
    row.text("kind"), row.text("what", ""), row.texts("gpus")
    figures = row.figures(RATE_FIGURES)
    row.done()
    if default is not None:
        figures = {**read_rates(default).figures, **figures}
    return LinkRates(
        id=preset.id,
        ring_bytes_per_s=rate(figures, "ring"),
        host_to_device_bytes_per_s=rate(figures, "host_to_device"),
        device_to_host_bytes_per_s=rate(figures, "device_to_host"),
        matmul_flops_per_s=rate(figures, "matmul"),
        latency_s=rate(figures, "latency"),
        network_efficiency=rate(figures, "network_efficiency"),
        cpu_adam_params_per_s=rate(figures, "cpu_adam"),
        figures=figures,
        origin=preset.origin,
    )
