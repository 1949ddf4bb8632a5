"""ZeroRedundancyOptimizer around DDP: whole tensors are dealt to ranks, so that ranks hold unequal optimizer states."""

from __future__ import annotations

import heapq
from functools import lru_cache
from typing import TYPE_CHECKING

from zerocalc.formulas.fsdp import tensor_bytes
from zerocalc.frameworks.pytorch.ddp import add_states, finish, num_tensors
from zerocalc.frameworks.pytorch.messages import Call, Wire, collective
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
    """Which tensors each rank updates: the largest first, each to the rank that has least so far."""
    dealt: list[list[int]] = [[] for _ in range(ranks)]
    lightest = [(0, rank) for rank in range(ranks)]
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
    """Each rank's tensors, among all that are dealt over the same ranks as `part`."""
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
    dealt = shares(view, part)
    chosen = heaviest_rank(dealt) if rank is None else rank
    mine = [member.tensor for member in dealt[chosen] if member.part.name == part.name]
    cut = Cut(tensor_bytes, tuple((1, {"num_params": tensor.numel}) for tensor in mine))
    local = local_layout((1, tensor) for tensor in mine)
    largest = max(member.tensor.numel for share in dealt for member in share) if rank is None else None
    return Holding(part, whole(part), cut, local, len(mine), largest, optimizer_shards=len(dealt), falls=True)


def _updates(setup: Setup) -> Iterator[Collective]:
    """Every rank broadcasts what it updated: each tensor, or all of its tensors as one bucket."""
    trained = {ranks_of(part): part for part in reversed(own_parts(setup.view)) if part.trainable}
    for ranks, part in trained.items():
        dealt = [[member.tensor.numel for member in share] for share in shares(setup.view, part)]
        if setup.settings["parameters_as_bucket_view"]:
            sizes = [sum(share) or 1 for share in dealt]
        else:
            sizes = [numel for share in dealt for numel in share]
        wire = Wire("broadcast", "params", setup.types.storage, "optimizer_step", ranks, part=part.name)
        calls = [Call(1, Cut(tensor_bytes, ((1, {"num_params": size}),))) for size in sizes]
        row = collective(setup.view, wire, calls, 1)
        if row is not None:
            yield row


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
    answer.assumptions.append(
        f"ZeroRedundancyOptimizer deals whole tensors: rank {heaviest_rank(dealt)} updates {max(totals):,} "
        f"parameters, the rank with least {min(totals):,}"
    )
