"""The GPU, its node, their sizes, and what is kept free on the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocalc.errors import SpecError, UsageError
from zerocalc.specs.job import WHAT_RESERVE_COVERS, Machine
from zerocalc.units import BYTE_UNITS, ceil, parse_ratio, parse_size

if TYPE_CHECKING:
    from zerocalc.jobs.givens import Givens
    from zerocalc.presets import Gpu, Node


def resolve_machine(g: Givens, *, states_only: bool) -> tuple[Machine, Gpu | None, Node | None]:
    """The machine's sizes, and the presets of the GPU and the node behind them."""
    from zerocalc.presets import load_gpu, load_node

    node = load_node(g.text("node") or "", directory=g.presets_dir) if "node" in g else None
    if node and node.assumption:
        g.assumptions.append(node.assumption)
    gpu_text = g.text("gpu", node.gpu if node else None)
    gpu = None if gpu_text is None or _is_size(gpu_text) else _gpu_preset(g, gpu_text, load_gpu)
    capacity = _preset_capacity(g, gpu) if gpu else _typed_capacity(g, gpu_text)
    if node is not None:
        for path in ("gpus_per_node", "host_memory_bytes", "nvme_memory_bytes"):
            g.origins[path] = node.origin
    sizes = {}
    for word, from_node in (
        ("host_memory", node and node.host_memory_bytes),
        ("nvme_memory", node and node.nvme_bytes),
    ):
        sizes[f"{word}_bytes"] = (
            parse_size(g.text(word) or "", name=g.where(word)) if word in g else from_node
        )
        if word in g:
            g.note(f"{word}_bytes", word)
    g.note("gpu", "gpu", default=node.origin if node else "default")
    g.note("node", "node")
    reserve = _reserve(g, gpu, capacity, states_only=states_only)
    machine = Machine(
        gpu=gpu.id if gpu else gpu_text, node=node.id if node else None,
        capacity_bytes=capacity, reserve_bytes=reserve, **sizes,
    )  # fmt: skip
    return machine, gpu, node


def _typed_capacity(g: Givens, text: str | None) -> int | None:
    """The GPU's memory where it is given as a size."""
    if text is None:
        return None
    capacity = parse_size(text, name=g.where("gpu"))
    if capacity == 0:
        raise SpecError(f"{g.where('gpu')}: must be above 0 (got {text})", hint="write it like 80GB or 80GiB")
    g.note("capacity_bytes", "gpu")
    return capacity


def _preset_capacity(g: Givens, gpu: Gpu) -> int:
    """The memory of a GPU known by name, and where that figure comes from."""
    g.origins["capacity_bytes"] = f"{gpu.origin}: {gpu.capacity_origin}"
    if gpu.assumption:
        g.assumptions.append(gpu.assumption)
    g.assumptions.append(f"capacity of {gpu.id}: {gpu.capacity_origin}")
    return gpu.capacity_bytes


def _gpu_preset(g: Givens, text: str, load_gpu: Any) -> Gpu:
    """A GPU by name; a bare number that names none is refused as a size without its unit."""
    from zerocalc.errors import UnknownNameError

    try:
        gpu: Gpu = load_gpu(text, directory=g.presets_dir)
    except UnknownNameError:
        if text[:1].isdigit() or text[:1] in "-.":
            parse_size(text, name=g.where("gpu"))
        raise
    return gpu


def _is_size(text: str) -> bool:
    """Whether the text is a number with a byte unit, such as `80GB`."""
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = text[len(digits) :].strip().lower()
    return digits[:1].isdigit() and unit in BYTE_UNITS and "-" not in digits.strip("-")


def _reserve(g: Givens, gpu: Gpu | None, capacity: int | None, *, states_only: bool) -> int:
    """What is kept free: a size, a percentage of capacity, or the preset's share once more than states is counted."""
    g.note("reserve_bytes", "reserve")
    text = g.text("reserve")
    if text is None:
        return 0 if states_only or gpu is None else _preset_reserve(g, gpu)
    if not text.endswith("%"):
        size = parse_size(text, name=g.where("reserve"))
    elif capacity is None:
        raise UsageError(f"{g.where('reserve')} {text} is a share of the GPU's memory", hint="give --gpu")
    else:
        percent = parse_ratio(text[:-1], name=g.where("reserve"))
        size = ceil(percent * capacity / 100)
    if capacity is not None and size > capacity:
        raise SpecError(f"{g.where('reserve')}: {text} is more than the GPU's {capacity:,} bytes")
    return _said_free(g, int(size), g.where("reserve"))


def _preset_reserve(g: Givens, gpu: Gpu) -> int:
    from zerocalc.presets import load_reserve

    row = load_reserve(gpu.reserve, directory=g.presets_dir)
    g.origins["reserve_bytes"] = f"preset:{gpu.reserve}"
    return _said_free(g, row.bytes_of(gpu.capacity_bytes), f"preset:{gpu.reserve}; --reserve changes it")


def _said_free(g: Givens, size: int, why: str) -> int:
    """What is kept free, and that it is."""
    if size:
        g.assumptions.append(f"kept free: {size:,} bytes for {WHAT_RESERVE_COVERS} ({why})")
    return size
