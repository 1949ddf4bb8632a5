"""Where stage 3 puts parameters and optimizer states when they are offloaded, and the buffers on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from zerocalc.formulas.deepspeed import swap_buffer_bytes
from zerocalc.formulas.registry import apply
from zerocalc.frameworks.deepspeed.engine import RESIDENT, Engine
from zerocalc.frameworks.deepspeed.states import buffer_term
from zerocalc.units import ceil_div

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zerocalc.frameworks.deepspeed.modules import Param
    from zerocalc.frameworks.terms import Term, Tier

SMALLEST_SWAPPED_BYTES = 2**20
"""Tensors below one I/O block stay in host memory."""
IO_BLOCK_BYTES = 1024
"""Swap buffers are rounded up to 1024 bytes per I/O thread; DeepSpeed uses one."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A parameter group's tensors by the tier on which they rest."""

    params: dict[Tier, list[Param]]
    states: dict[Tier, list[tuple[Param, ...]]]
    """Sub-groups by the tier of their optimizer states."""


def placement_of(engine: Engine, sub_groups: list[tuple[Param, ...]], ranks: int) -> Placement:
    """Place a group's sub-groups as DeepSpeed does: the first ones on the GPU under `ratio`, the small ones never on NVMe."""
    sizes = [sum(ceil_div(param.numel, ranks) for param in members) for members in sub_groups]
    return Placement(_params(engine, sub_groups, sizes), _states(engine, sub_groups, sizes))


def swap_buffers(engine: Engine, widest: int) -> Iterator[Term]:
    """Pinned host memory on the way to NVMe, allocated whatever is swapped; `widest` is the largest sub-group's share."""
    settings, offload = engine.settings, engine.view.job.offload
    master, param = engine.bytes_of(engine.master_dtype), engine.bytes_of(engine.param_dtype)
    rows = []
    if offload.optimizer == "nvme":
        rows.append(("optimizer_swap_buffers", settings["offload_optimizer.buffer_count"], widest, master))
    if offload.params == "nvme":
        elements = settings["offload_param.buffer_size"]
        rows.append(("param_swap_buffers", settings["offload_param.buffer_count"], elements, param))
    for name, buffers, elements, width in rows:
        amount = apply(
            swap_buffer_bytes,
            buffers=buffers, num_elements=elements, bytes_per_element=width, alignment=IO_BLOCK_BYTES // width,
        )  # fmt: skip
        yield buffer_term(name, amount, RESIDENT, tier="cpu")


def _states(
    engine: Engine, sub_groups: list[tuple[Param, ...]], sizes: list[int]
) -> dict[Tier, list[tuple[Param, ...]]]:
    where = engine.view.job.offload.optimizer
    placed: dict[Tier, list[tuple[Param, ...]]] = {}
    on_gpu = int((1 - engine.settings["offload_optimizer.ratio"]) * len(sub_groups))
    width = engine.bytes_of(engine.master_dtype)
    for index, (members, size) in enumerate(zip(sub_groups, sizes, strict=True)):
        tier: Tier = "gpu" if where == "none" or (where == "cpu" and index < on_gpu) else where
        if tier == "nvme" and size * width < SMALLEST_SWAPPED_BYTES:
            tier = "cpu"
        placed.setdefault(tier, []).append(members)
    return placed


def _params(engine: Engine, sub_groups: list[tuple[Param, ...]], sizes: list[int]) -> dict[Tier, list[Param]]:
    """On NVMe, sub-groups stay in host memory as long as `max_in_cpu` elements hold them."""
    where = engine.view.job.offload.params
    placed: dict[Tier, list[Param]] = {}
    room, used = min(engine.settings["offload_param.max_in_cpu"], sum(sizes)), 0
    for members, size in zip(sub_groups, sizes, strict=True):
        tier: Tier = "gpu" if where == "none" else where
        if tier == "nvme" and used + size <= room:
            tier = "cpu"
        used += size
        placed.setdefault(tier, []).extend(members)
    return placed
