"""Rows about hardware: accelerators and nodes."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from zerocalc.presets.rows import (
    BANDWIDTH,
    BYTES,
    FLOPS,
    Alternative,
    Figure,
    Preset,
    rate,
    read_alternatives,
    row_of,
)


class Gpu(NamedTuple):
    """One accelerator. Bytes are integers; rates are per second, per GPU and per direction, None where unknown."""

    id: str
    name: str
    vendor: str
    capacity_bytes: int
    capacity_origin: str
    half_dtype: str | None
    half_flops_per_s: float | None
    memory_bytes_per_s: float | None
    scaleup_bytes_per_s: float | None
    host_bytes_per_s: float | None
    reserve: str
    figures: dict[str, Figure]
    alternatives: tuple[Alternative, ...]
    notes: str
    origin: str
    assumption: str | None


GPU_FIGURES = {
    **dict.fromkeys(("marketed_memory", "smi_total", "torch_total", "usual_gap"), BYTES),
    **dict.fromkeys(("bf16_dense", "fp16_dense", "fp8_dense", "tf32_dense", "fp32"), FLOPS),
    **dict.fromkeys(("memory_bandwidth", "scaleup_per_direction", "p2p_per_direction"), BANDWIDTH),
    **dict.fromkeys(("host_link_per_direction", "pcie_per_direction"), BANDWIDTH),
    **dict.fromkeys(("pcie_generation", "pcie_lanes", "year"), None),
}


def capacity(figures: dict[str, Figure], *, gb_means: str) -> tuple[int, str] | None:
    """Bytes the framework sees, and a sentence on their origin; None when the row has no memory figure.

    PyTorch's total where it was logged; else the driver's total minus the gap usual in its class; else as sold.
    """
    if torch := figures.get("torch_total"):
        note = f"; {torch.note}" if torch.note else ""
        return torch.whole, f"PyTorch's own total, {torch.text} ({torch.confidence} confidence{note})"
    if smi := figures.get("smi_total"):
        if gap := figures.get("usual_gap"):
            return (
                smi.whole - gap.whole,
                f"the driver's total {smi.text} less the usual gap {gap.text} ({gap.source})",
            )
        return smi.whole, f"the driver's total, {smi.text}; PyTorch sees a little less"
    if sold := figures.get("marketed_memory"):
        if gb_means == "GiB" and sold.unit.startswith("GB"):
            size = sold.exact / 10**9 * 2**30
            return int(size), f"as sold, {sold.text}, which on this part are GiB; PyTorch sees a little less"
        return sold.whole, f"as sold, {sold.text}; no driver or PyTorch total is published"
    return None


def read_gpu(preset: Preset) -> Gpu:
    """Read a GPU's row."""
    row = row_of(preset)
    figures = row.figures(GPU_FIGURES)
    size = capacity(figures, gb_means=row.text("gb_means", "GB", allowed=("GB", "GiB")))
    if size is None or size[0] <= 0:
        raise row.error(
            "torch_total", "no memory size; one of torch_total, smi_total, marketed_memory is required"
        )
    half = next((dtype for dtype in ("bf16", "fp16") if f"{dtype}_dense" in figures), None)
    gpu = Gpu(
        id=preset.id,
        name=row.text("name", preset.id),
        vendor=row.text("vendor", ""),
        capacity_bytes=size[0],
        capacity_origin=size[1],
        half_dtype=half,
        half_flops_per_s=rate(figures, f"{half}_dense"),
        memory_bytes_per_s=rate(figures, "memory_bandwidth"),
        scaleup_bytes_per_s=rate(figures, "scaleup_per_direction"),
        host_bytes_per_s=rate(figures, "host_link_per_direction", "pcie_per_direction"),
        reserve=row.text("reserve", "default"),
        figures=figures,
        alternatives=read_alternatives(row),
        notes=row.text("notes", ""),
        origin=preset.origin,
        assumption=preset.assumption,
    )
    row.done()
    return gpu


class Node(NamedTuple):
    """One host. Totals are per node; the link inside the node is per GPU and direction; None where unknown."""

    id: str
    name: str
    gpu: str
    gpus_per_node: int
    host_memory_bytes: int | None
    nvme_bytes: int | None
    intra_link: str
    intra_link_bytes_per_s: float | None
    network_bytes_per_s: float | None
    host_node_bytes_per_s: float | None
    nvme_read_bytes_per_s: float | None
    nvme_write_bytes_per_s: float | None
    figures: dict[str, Figure]
    alternatives: tuple[Alternative, ...]
    notes: str
    origin: str
    assumption: str | None


COUNT = {"GPUs": Fraction(1), "": Fraction(1)}
NODE_FIGURES = {
    "gpus_per_node": COUNT,
    **dict.fromkeys(("host_memory", "nvme"), BYTES),
    **dict.fromkeys(
        ("intra_link_per_direction", "network", "host_link", "nvme_read", "nvme_write"), BANDWIDTH
    ),
    **dict.fromkeys(("gpu_as_printed", "nvme_layout", "intra_link", "network_layout"), None),
    **dict.fromkeys(("pcie_topology", "cpu", "cpu_cores", "vcpus"), None),
}


def read_node(preset: Preset) -> Node:
    """Read a node's row; `gpu` is the id or an alias of a GPU preset."""
    row = row_of(preset)
    figures = row.figures(NODE_FIGURES)
    if "gpus_per_node" not in figures or figures["gpus_per_node"].whole < 1:
        raise row.error("gpus_per_node", "must be at least 1")
    sizes = {key: figures[key].whole if key in figures else None for key in ("host_memory", "nvme")}
    node = Node(
        id=preset.id,
        name=row.text("name", preset.id),
        gpu=row.text("gpu"),
        gpus_per_node=figures["gpus_per_node"].whole,
        host_memory_bytes=sizes["host_memory"],
        nvme_bytes=sizes["nvme"],
        intra_link=figures["intra_link"].text if "intra_link" in figures else "",
        intra_link_bytes_per_s=rate(figures, "intra_link_per_direction"),
        network_bytes_per_s=rate(figures, "network"),
        host_node_bytes_per_s=rate(figures, "host_link"),
        nvme_read_bytes_per_s=rate(figures, "nvme_read"),
        nvme_write_bytes_per_s=rate(figures, "nvme_write"),
        figures=figures,
        alternatives=read_alternatives(row),
        notes=row.text("notes", ""),
        origin=preset.origin,
        assumption=preset.assumption,
    )
    row.done()
    return node
