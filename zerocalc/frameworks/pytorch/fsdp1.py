"""FSDP1's FullyShardedDataParallel: FULL_SHARD, SHARD_GRAD_OP, HYBRID_SHARD and NO_SHARD over flat parameters."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from zerocalc.formulas.fsdp import flat_gathered_bytes, flat_shard_bytes
from zerocalc.frameworks.pytorch.flat import gathered_cut, holding_of
from zerocalc.frameworks.pytorch.flat_set import flat_moments
from zerocalc.frameworks.pytorch.messages import Call, Rows, Wire, collectives
from zerocalc.frameworks.pytorch.model import groups_of, say_sharded, setup_of, shapes_known
from zerocalc.frameworks.pytorch.moments import spread, terms_of
from zerocalc.frameworks.pytorch.states import (
    Cut,
    buffers_terms,
    grads_phases,
    grads_term,
    initial_terms,
    offload_tier,
    optimizer_terms,
    params_term,
    say_offload,
)
from zerocalc.frameworks.pytorch.turn import say_activations, turn_of
from zerocalc.frameworks.terms import FORWARD_BACKWARD, Collective, Plan, Term
from zerocalc.units import dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zerocalc.frameworks.pytorch.model import Group, Settings, Setup
    from zerocalc.rank import Part, RankView


def plan(view: RankView, settings: Settings, rank: int | None = None) -> Plan:
    """Flat shards at rest, or whole flat parameters (NO_SHARD)."""
    setup = setup_of(view, settings, casts=True)
    answer = Plan()
    groups = _groups(setup)
    for group in groups:
        for part in group.parts:
            answer.terms += state_terms(setup, group, part, rank)
        answer.terms += _accumulated(setup, group)
        answer.collectives += messages(setup, group)
    answer.terms += buffers_terms(setup)
    answer.terms += initial_terms(setup)
    if shapes_known(view):
        answer.terms = spread(
            answer.terms, terms_of(flat_moments(setup, groups, turn_of(setup), keeps=not reshards(setup)))
        )
    say_sharded(setup, answer, "FSDP1")
    say_activations(setup, answer)
    say_offload(view, answer, possible=True)
    return answer


def _groups(setup: Setup) -> list[Group]:
    """NO_SHARD replicates every unit: shards of one rank, all ranks replicas."""
    groups = [_joined(group) for group in groups_of(setup.view, setup.settings["wrap"])]
    if setup.view.strategy.name != "ddp":
        return groups
    return [replace(group, ranks=1, replicas=group.ranks * group.replicas) for group in groups]


def _joined(group: Group) -> Group:
    """A unit's flat parameter takes in dense and expert tensors alike: one shard, one step counter."""
    parts = [part for part in group.parts if part.name in {"dense", "expert"}]
    if len(parts) <= 1 or len({part.trainable for part in parts}) > 1:
        return group
    whole = replace(parts[0], num_params=sum(part.num_params for part in parts))
    blocks = (
        replace(
            block,
            members=tuple(m._replace(part=whole) if m.part in parts else m for m in block.members),
        )
        for block in group.blocks
    )
    return replace(group, blocks=tuple(blocks))


def reshards(setup: Setup) -> bool:
    """Whether units are freed after forward: FULL_SHARD and HYBRID_SHARD do, SHARD_GRAD_OP does not."""
    return setup.settings["reshard_after_forward"] is not False


def state_terms(setup: Setup, group: Group, part: Part, rank: int | None) -> Iterator[Term]:
    """Parameters, gradients and optimizer states of a part."""
    tier = offload_tier(setup.view)
    holding = holding_of(setup, group, part, rank)
    yield params_term(holding, setup.types, tier)
    if part.trainable:
        phases = grads_phases(setup, reduced_in_turn=not setup.settings["no_sync"])
        yield grads_term(holding, setup.types, phases, tier)
        yield from optimizer_terms(setup, holding, tier)


def _accumulated(setup: Setup, group: Group) -> Iterator[Term]:
    """Inside no_sync(), whole gradients live from one micro-step to the next."""
    calls = _calls(setup, group, trained=True)
    if not setup.settings["no_sync"] or setup.accum == 1 or group.ranks == 1 or not calls:
        return
    groups = tuple((call.count, dict(inputs)) for call in calls for _, inputs in call.cut.groups)
    amount = Cut(flat_gathered_bytes, groups).bytes_of(dtype_bytes(setup.types.compute))
    yield Term(name="unsharded_grads", phases=(FORWARD_BACKWARD,), amount=amount)


def messages(setup: Setup, group: Group) -> Iterator[Collective]:
    """Gathers in forward, again in backward for all units but the root; reductions of micro-steps that sync."""
    rows = [] if group.ranks == 1 < group.replicas else _sharded_rows(setup, group)
    if group.replicas > 1 and not group.forward_only:
        shards = [
            Call(c.count, Cut(flat_shard_bytes, c.cut.groups)) for c in _calls(setup, group, trained=True)
        ]
        wire = Wire("all_reduce", "grads", setup.types.reduce, "backward", group.replicas, group="replica")
        rows.append((wire, shards, _syncs(setup)))
    return collectives(setup.view, rows)


def _syncs(setup: Setup) -> int:
    return 1 if setup.settings["no_sync"] else setup.accum


def _sharded_rows(setup: Setup, group: Group) -> Rows:
    types = setup.types
    gathers = setup.accum if reshards(setup) else _syncs(setup)
    rows = [
        (Wire("all_gather", "params", types.compute, "forward", group.ranks), _calls(setup, group), gathers)
    ]
    if group.forward_only:
        return rows
    again = _calls(setup, group, root=False) if reshards(setup) else []
    reduced = _calls(setup, group, trained=True)
    rows.append((Wire("all_gather", "params", types.compute, "backward", group.ranks), again, setup.accum))
    rows.append(
        (Wire("reduce_scatter", "grads", types.reduce, "backward", group.ranks), reduced, _syncs(setup))
    )
    return rows


def _calls(setup: Setup, group: Group, *, trained: bool = False, root: bool = True) -> list[Call]:
    """One call per unit."""
    found = [
        (block, block.trained if trained else block.members)
        for block in group.blocks
        if root or not block.is_root
    ]
    return [Call(b.count, gathered_cut(setup, members, group.ranks)) for b, members in found if members]
