"""What one rank moves over PCIe and to NVMe in an optimizer step: ZeRO-Offload's minimum, ZeRO-Infinity's tiers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from zerocalc.formulas.registry import apply
from zerocalc.formulas.states import state_bytes
from zerocalc.frameworks.terms import Direction, Link, Term, Tier, Traffic

if TYPE_CHECKING:
    from zerocalc.rank import Part, RankView
    from zerocalc.strategies import State


def traffic(view: RankView, terms: list[Term]) -> Iterator[Traffic]:
    """Bytes over PCIe and to NVMe: each state that rests there, as often as the step reads and writes it."""
    for part in view.parts:
        tiers = {
            term.state: term.tier
            for term in terms
            if term.part == part.name and term.state is not None and term.name != "secondary_params"
        }
        yield from _optimizer_traffic(view, part, tiers)
        yield from _param_traffic(view, part, tiers["params"])


def _optimizer_traffic(view: RankView, part: Part, tiers: dict[State, Tier]) -> Iterator[Traffic]:
    """ZeRO-Offload's minimum: gradients down, updated parameters up; NVMe states read and written once."""
    if not part.trainable or tiers["optimizer_states"] == "gpu":
        return
    downloads = view.job.workload.grad_accum if tiers["grads"] != "gpu" else 1
    yield _move(part, "to_host", "grads", part.grad_bytes * downloads)
    if tiers["params"] == "gpu":
        yield _move(part, "from_host", "params", part.param_bytes)
    if tiers["optimizer_states"] != "nvme":
        return
    times: dict[Direction, int] = {"read": 1, "write": downloads}
    for direction, grad_times in times.items():
        yield _move(part, direction, "optimizer_states", view.job.optimizer.bytes_per_param)
        if tiers["grads"] == "nvme":
            yield _move(part, direction, "grads", part.grad_bytes * grad_times)


def _param_traffic(view: RankView, part: Part, tier: Tier) -> Iterator[Traffic]:
    """Parameters off the GPU are loaded for every pass; on NVMe, trained ones are written back once."""
    if tier == "gpu":
        return
    work = view.job.workload
    passes = 1 if part.forward_only else 3 if work.checkpointing == "full" else 2
    loaded = part.param_bytes * passes * work.grad_accum
    yield _move(part, "from_host", "params", loaded)
    if tier == "nvme":
        yield _move(part, "read", "params", loaded)
        if part.trainable:
            yield _move(part, "write", "params", part.param_bytes)


def _move(part: Part, direction: Direction, name: str, per_param: Any) -> Traffic:
    """A part's shard, once over the link that the direction names."""
    amount = apply(
        state_bytes, num_params=part.num_params, bytes_per_param=per_param, shards=part.shard_ranks
    )
    link: Link = "nvme" if direction in {"read", "write"} else "host"
    return Traffic(link=link, direction=direction, name=name, amount=amount)
