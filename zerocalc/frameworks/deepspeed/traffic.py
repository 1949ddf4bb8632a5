"""Bytes between GPU, host and NVMe in an optimizer step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocalc.frameworks.deepspeed.stage3 import share_elements
from zerocalc.frameworks.deepspeed.stage12 import flat_group
from zerocalc.frameworks.deepspeed.states import sized, state_widths
from zerocalc.frameworks.terms import Direction, Link, Traffic
from zerocalc.units import ceil_div

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zerocalc.frameworks.deepspeed.engine import Engine, Group
    from zerocalc.frameworks.deepspeed.gathers import Gathers


def traffic(engine: Engine, gathers: Gathers | None) -> Iterator[Traffic]:
    """What one rank moves: gradients down, updated parameters up, and what rests on NVMe read and written."""
    for group in engine.trained:
        if engine.offloads_optimizer:
            yield from _optimizer(engine, group)
    if gathers is not None and engine.view.job.offload.params != "none":
        yield from _params(engine, gathers)


def _share(engine: Engine, group: Group) -> int:
    if engine.stage == 3:
        return share_elements(group.params, group.ranks)
    return flat_group(engine, group).partition


def _move(link: Link, direction: Direction, name: str, elements: int, width: Any) -> Traffic:
    amount = sized(elements, width)
    return Traffic(link=link, direction=direction, name=name, amount=amount)


def _optimizer(engine: Engine, group: Group) -> Iterator[Traffic]:
    """Below stage 3 gradients go down once, in fp32; stage 3 writes its partition every micro-step and reads it back."""
    share, master = _share(engine, group), engine.bytes_of(engine.master_dtype)
    accum, steps = engine.bytes_of(engine.accum_dtype), engine.grad_accum
    yield _move("host", "to_host", "grads", share, master)
    if engine.stage == 3:
        yield _move("host", "to_host", "grads_partition", share, accum * steps)
        yield _move("host", "from_host", "grads_partition", share, accum * steps)
    elif engine.stage == 2 and steps > 1:
        yield _move("host", "to_host", "accumulated_grads", share, accum * steps)
        yield _move("host", "from_host", "accumulated_grads", share, accum * (steps - 1))
    if engine.view.job.offload.params == "none":
        yield _move("host", "from_host", "params", share, engine.bytes_of(group.dtype))
    if engine.view.job.offload.optimizer == "nvme" and engine.stage == 3:
        states = master + sum(width for _, width in state_widths(engine))
        yield _move("nvme", "read", "optimizer_states", share, states + master)
        yield _move("nvme", "write", "optimizer_states", share, states)
        yield _move("nvme", "write", "grads", share, master)


def _params(engine: Engine, gathers: Gathers) -> Iterator[Traffic]:
    """Each gather brings the rank's own shares up; from NVMe they pass the host first."""
    ranks = engine.groups[0].ranks
    elements = sum(
        times * sum(ceil_div(p.numel, ranks) for p in gather.params) for gather, times in gathers.calls()
    )
    width = engine.bytes_of(engine.param_dtype)
    yield _move("host", "from_host", "params", elements, width)
    if engine.view.job.offload.params == "nvme":
        yield _move("nvme", "read", "params", elements, width)
        written = sum(share_elements(group.params, group.ranks) for group in engine.trained)
        yield _move("nvme", "write", "params", written, width)
