"""Where stage 3 puts parameters and optimizer states when they are offloaded, and the buffers on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

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


class SubGroup(NamedTuple):
    """Tensors that the optimizer updates together, as often as equal ones follow each other."""

    params: tuple[Param, ...]
    times: int = 1

    def share(self, ranks: int) -> int:
        """Elements of one rank's shares of the tensors of one of them."""
        return sum(ceil_div(param.numel, ranks) for param in self.params)


@dataclass(frozen=True, slots=True)
class Placement:
    """A parameter group's sub-groups by the tier on which their parameters, and their optimizer states, rest."""

    params: dict[Tier, list[SubGroup]]
    states: dict[Tier, list[SubGroup]]


def placement_of(engine: Engine, sub_groups: list[SubGroup], ranks: int) -> Placement:
    """Place a group's sub-groups as DeepSpeed does: the first ones on the GPU under `ratio`, the small ones never on NVMe."""
    return Placement(_params(engine, sub_groups, ranks), _states(engine, sub_groups, ranks))


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


def _states(engine: Engine, sub_groups: list[SubGroup], ranks: int) -> dict[Tier, list[SubGroup]]:
    where = engine.view.job.offload.optimizer
    placed: dict[Tier, list[SubGroup]] = {}
    ratio = engine.settings["offload_optimizer.ratio"] if where == "cpu" else 1
    room = int((1 - ratio) * sum(group.times for group in sub_groups))
    width = engine.bytes_of(engine.master_dtype)
    for group in sub_groups:
        tier: Tier = "gpu" if where == "none" else where
        if tier == "nvme" and group.share(ranks) * width < SMALLEST_SWAPPED_BYTES:
            tier = "cpu"
        _place(placed, group, room, "gpu", tier)
        room = max(0, room - group.times)
    return placed


def _params(engine: Engine, sub_groups: list[SubGroup], ranks: int) -> dict[Tier, list[SubGroup]]:
    """On NVMe, sub-groups stay in host memory as long as `max_in_cpu` elements hold them."""
    where = engine.view.job.offload.params
    tier: Tier = "gpu" if where == "none" else where
    placed: dict[Tier, list[SubGroup]] = {}
    room = engine.settings["offload_param.max_in_cpu"] if tier == "nvme" else 0
    for group in sub_groups:
        share = group.share(ranks)
        _place(placed, group, room // share, "cpu", tier)
        room = max(0, room - group.times * share)
    return placed


def _place(placed: dict[Tier, list[SubGroup]], group: SubGroup, room: int, near: Tier, far: Tier) -> None:
    """Put as many of equal sub-groups near as there is room for, the rest far."""
    first = min(group.times, room)
    for tier, times in ((near, first), (far, group.times - first)):
        if times:
            placed.setdefault(tier, []).append(group._replace(times=times))
