"""ZeroRedundancyOptimizer around DDP: whole tensors are dealt to ranks, so that ranks hold unequal optimizer states."""

from __future__ import annotations

import heapq
from functools import lru_cache
from typing import TYPE_CHECKING

from zerocalc.formulas.fsdp import flat_shard_bytes, tensor_bytes
from zerocalc.frameworks.pytorch.ddp import add_states, finish, num_tensors
from zerocalc.frameworks.pytorch.messages import Call, Wire, collectives
from zerocalc.frameworks.pytorch.model import (
    Member,
    local_layout,
    own_parts,
    setup_of,
    shapes_known,
    trained_members,
)
from zerocalc.frameworks.pytorch.states import Cut, Holding, whole
from zerocalc.frameworks.terms import Collective, Plan
from zerocalc.layout import Tensor
from zerocalc.units import ceil_div

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zerocalc.frameworks.pytorch.model import Settings, Setup
    from zerocalc.rank import Part, RankView


def plan(view: RankView, settings: Settings, rank: int | None = None) -> Plan:
    """DDP's parameters and gradients, and one rank's tensors for the optimizer: by default the rank with most."""
    setup = setup_of(view, settings, casts=False)
    answer = Plan()
    for part in view.parts:
        add_states(setup, answer, _holding(view, part, rank))
    finish(setup, answer)
    answer.collectives += _updates(setup)
    _say(view, answer)
    return answer


def deal(sizes: tuple[int, ...], ranks: int) -> list[list[int]]:
    """Which tensors each rank updates: the largest first, each to the rank that has least so far.

    Ranks beyond the number of tensors get none and are left out.
    """
    busy = min(ranks, len(sizes))
    dealt: list[list[int]] = [[] for _ in range(busy)]
    lightest = [(0, rank) for rank in range(busy)]
    for index in sorted(range(len(sizes)), key=lambda i: sizes[i], reverse=True):
        held, rank = heapq.heappop(lightest)
        dealt[rank].append(index)
        heapq.heappush(lightest, (held + sizes[index], rank))
    return dealt


_deal = lru_cache(maxsize=64)(deal)


def ranks_of(part: Part) -> int:
    """Ranks over which the optimizer's work is dealt."""
    return int(part.shard_ranks * part.replicas)


def shares(view: RankView, part: Part) -> list[list[Member]]:
    """Each rank's tensors, among all that are dealt over the same ranks as `part`; idle ranks are left out."""
    ranks = ranks_of(part)
    members = [member for member in trained_members(view) if ranks_of(member.part) == ranks]
    dealt = _deal(tuple(member.tensor.numel for member in members), ranks)
    return [[members[index] for index in indices] for indices in dealt]


def heaviest_rank(dealt: list[list[Member]]) -> int:
    """The rank whose tensors have most elements, and most counters among equals."""
    return max(range(len(dealt)), key=lambda r: (sum(m.tensor.numel for m in dealt[r]), len(dealt[r])))


def _holding(view: RankView, part: Part, rank: int | None) -> Holding:
    if not part.trainable:
        return Holding(part, whole(part), whole(part), part.layout, num_tensors(part))
    if not shapes_known(view):
        return _even(part)
    dealt = shares(view, part)
    chosen = heaviest_rank(dealt) if rank is None else rank
    share = dealt[chosen] if chosen < len(dealt) else []
    mine = [member.tensor for member in share if member.part.name == part.name]
    cut = Cut(tensor_bytes, tuple((1, {"num_params": tensor.numel}) for tensor in mine))
    local = local_layout((1, tensor) for tensor in mine)
    largest = max(member.tensor.numel for share in dealt for member in share) if rank is None else None
    return Holding(
        part, whole(part), cut, local, len(mine), largest, optimizer_shards=ranks_of(part), falls=True
    )


def _even(part: Part) -> Holding:
    """An even share of a part whose tensors are not known."""
    ranks = ranks_of(part)
    cut = Cut(flat_shard_bytes, ((1, {"unit_params": part.num_params, "ranks": ranks}),))
    local = local_layout([(1, Tensor(part.name, (ceil_div(part.num_params, ranks),), kind="other"))])
    return Holding(part, whole(part), cut, local, 1, optimizer_shards=ranks, falls=True)


def _updates(setup: Setup) -> Iterator[Collective]:
    """Every rank broadcasts what it updated: each tensor, or all of its tensors as one bucket."""
    trained = {ranks_of(part): part for part in reversed(own_parts(setup.view)) if part.trainable}
    for ranks, part in trained.items():
        dealt = [[member.tensor.numel for member in share] for share in shares(setup.view, part)]
        sizes = [(1, numel) for share in dealt for numel in share]
        if setup.settings["parameters_as_bucket_view"]:
            sizes = [*((1, sum(share)) for share in dealt), (ranks - len(dealt), 1)]
        wire = Wire("broadcast", "params", setup.types.storage, "optimizer_step", ranks, part=part.name)
        calls = [Call(n, Cut(tensor_bytes, ((1, {"num_params": size}),))) for n, size in sizes if n]
        yield from collectives(setup.view, [(wire, calls, 1)])


def _say(view: RankView, answer: Plan) -> None:
    part = next((part for part in own_parts(view) if part.trainable), None)
    if part is None:
        return
    if not shapes_known(view):
        answer.excluded.append(
            "ZeroRedundancyOptimizer's uneven shares (need tensor shapes, not just a count)"
        )
        return
    dealt = shares(view, part)
    totals = [sum(member.tensor.numel for member in share) for share in dealt]
    least = min(totals) if len(dealt) == ranks_of(part) else 0
    answer.assumptions.append(
        f"ZeroRedundancyOptimizer deals whole tensors: rank {heaviest_rank(dealt)} updates {max(totals):,} "
        f"parameters, the rank with least {least:,}"
    )
