"""FSDP2's fully_shard: padded shards at rest, gathered and reduced unit by unit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zerocalc.errors import UsageError
from zerocalc.formulas.fsdp import padded_rows_bytes, tensor_bytes
from zerocalc.formulas.registry import apply_grouped
from zerocalc.frameworks.pytorch.fsdp2_cuts import gathered_cut, holding_of, padded_cut, rows_of
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
from zerocalc.frameworks.pytorch.working_set import working_set
from zerocalc.frameworks.terms import FORWARD_BACKWARD, Collective, Plan, Term, Traffic
from zerocalc.units import dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from zerocalc.frameworks.pytorch.model import Block, Group, Member, Settings, Setup
    from zerocalc.rank import Part, RankView

EXPERT_DIMENSIONS = 3


def plan(view: RankView, settings: Settings, rank: int = 0) -> Plan:
    """States, working set and messages of one rank: rank 0 has no padding and so holds most."""
    setup = setup_of(view, settings, casts=True)
    answer = Plan()
    groups = [placed(group, settings) for group in groups_of(view, settings["wrap"])]
    for group in groups:
        for part in group.parts:
            answer.terms += state_terms(setup, group, part, rank)
        answer.collectives += messages(setup, group)
        answer.traffic += traffic(setup, group)
    answer.terms += buffers_terms(setup)
    answer.terms += initial_terms(setup)
    answer.terms = spread(answer.terms, turn_terms(setup, groups))
    say_sharded(setup, answer, "FSDP2")
    say_activations(setup, answer)
    say_offload(view, answer, possible=True)
    return answer


def placed(group: Group, settings: Settings) -> Group:
    """The group with the dimension that is sharded in front: fused experts may be cut along their second one."""
    if settings["shard_placement_fn"] == "none":
        return group

    def turned(member: Member) -> Member:
        shape = member.tensor.shape
        if member.tensor.kind != "expert" or len(shape) < EXPERT_DIMENSIONS:
            return member
        if shape[1] % group.ranks:
            raise UsageError(
                f"shard_placement_fn: {shape[1]:,} rows of {member.tensor.name} over {group.ranks} ranks"
            )
        return member._replace(tensor=replace(member.tensor, shape=(shape[1], shape[0], *shape[2:])))

    blocks = tuple(replace(block, members=tuple(map(turned, block.members))) for block in group.blocks)
    return replace(group, blocks=blocks)


def state_terms(setup: Setup, group: Group, part: Part, rank: int) -> Iterator[Term]:
    """Parameters, gradients and optimizer states of a part; the CPU offload policy moves all of them."""
    tier = offload_tier(setup.view)
    holding = holding_of(group, part, rank)
    yield params_term(holding, setup.types, tier)
    if part.trainable:
        syncs = setup.settings["requires_gradient_sync"]
        yield grads_term(holding, setup.types, grads_phases(setup, reduced_in_turn=syncs), tier)
        yield from optimizer_terms(setup, holding, tier)


def turn_terms(setup: Setup, groups: list[Group]) -> list[Term]:
    """The working set at every moment of the turn; of a bare count, only gradients that are not reduced."""
    if not shapes_known(setup.view):
        return list(_accumulated(setup, groups))
    group = next(group for group in groups if not group.forward_only)
    layers = [block for block in group.blocks if block.role == "layer"] or list(group.blocks)
    ranks = reshard_ranks(layers[0], group, setup.settings)
    between = ranks if ranks is not None and ranks < group.ranks else None
    roots = [block for block in group.blocks if block.is_root]
    leaves = any(reshard_ranks(root, group, setup.settings) is not None for root in roots)
    working = working_set(
        setup, groups, turn_of(setup), keeps=ranks is None, kept_over=between, root_leaves=leaves
    )
    return terms_of(working.moments())


def _accumulated(setup: Setup, groups: list[Group]) -> Iterator[Term]:
    """Without gradient sync, whole gradients in the reduce type live from one micro-step to the next."""
    if setup.settings["requires_gradient_sync"] or setup.accum == 1:
        return
    for group in groups:
        tensors = tuple((b.count, {"num_params": m.tensor.numel}) for b in group.blocks for m in b.trained)
        if tensors:
            amount = Cut(tensor_bytes, tensors).bytes_of(dtype_bytes(setup.types.reduce))
            yield Term(name="unsharded_grads", phases=(FORWARD_BACKWARD,), amount=amount)


def reshard_ranks(block: Block, group: Group, settings: Settings) -> int | None:
    """Over how many ranks a unit is gathered again in backward; None where it stays whole after forward."""
    value: Any = settings["reshard_after_forward"]
    if value is None:
        value = not (block.is_root or block.stays)
    if value is True or value is False:
        return group.ranks if value else None
    if value < 1 or group.ranks % value:
        raise UsageError(
            f"--set reshard_after_forward={value} does not divide the {group.ranks} ranks of the sharding group"
        )
    return None if value == 1 else int(value)


def messages(setup: Setup, group: Group) -> Iterator[Collective]:
    """Gathers of every micro-step, reductions of those that sync."""
    rows = _gathers(setup, group)
    if not group.forward_only:
        rows += _reductions(setup, group)
    return collectives(setup.view, rows)


def traffic(setup: Setup, group: Group) -> Iterator[Traffic]:
    """Under the CPU offload policy: shards up for every gather in their resting type, reduced gradients down."""
    if offload_tier(setup.view) == "gpu":
        return
    settings = setup.settings
    syncs = setup.accum if settings["requires_gradient_sync"] else 1
    kept = not settings["reshard_after_backward"] and not group.forward_only
    up, down = [], []
    for block in group.blocks:
        again = not group.forward_only and reshard_ranks(block, group, settings) is not None
        for member in block.members:
            inputs = {
                **rows_of(member.tensor, group.ranks),
                "element_bytes": setup.types.resting_bytes(member.part),
            }
            up.append((block.count * ((1 if kept else setup.accum) + again * setup.accum), inputs))
            if member.part.trainable:
                down.append((block.count * syncs, inputs))
    yield Traffic(
        link="host", direction="from_host", name="params", amount=apply_grouped(padded_rows_bytes, up)
    )
    if down:
        yield Traffic(
            link="host", direction="to_host", name="grads", amount=apply_grouped(padded_rows_bytes, down)
        )


def _gathers(setup: Setup, group: Group) -> Rows:
    """Forward gathers all units, backward those that did not stay; what is kept after backward is gathered once."""
    settings, dtype = setup.settings, setup.types.compute
    over = {block.name: reshard_ranks(block, group, settings) for block in group.blocks}
    leaving = [block for block in group.blocks if over[block.name] is not None]
    whole = [] if settings["reshard_after_backward"] else group.blocks
    if group.forward_only:
        whole = [block for block in whole if block not in leaving]
    first = [block for block in group.blocks if block not in whole]
    forward = Wire("all_gather", "params", dtype, "forward", group.ranks)
    rows: Rows = [(forward, _calls(first, group), setup.accum), (forward, _calls(whole, group), 1)]
    if group.forward_only:
        return rows
    for ranks in dict.fromkeys(over[block.name] for block in leaving):
        here = _calls([block for block in leaving if over[block.name] == ranks], group)
        rows.append((Wire("all_gather", "params", dtype, "backward", ranks or 1), here, setup.accum))
    return rows


def _reductions(setup: Setup, group: Group) -> Rows:
    """Reduce-scatter within the sharding group, then all-reduce of the shards between its replicas."""
    settings, dtype = setup.settings, setup.types.reduce
    syncs = setup.accum if settings["requires_gradient_sync"] else 1
    whole = _calls(group.blocks, group, trained=True)
    rows: Rows = [(Wire("reduce_scatter", "grads", dtype, "backward", group.ranks), whole, syncs)]
    if group.replicas > 1:
        shards = [
            Call(block.count, padded_cut(((1, member.tensor) for member in block.trained), group.ranks))
            for block in group.blocks
            if block.trained
        ]
        wire = Wire("all_reduce", "grads", dtype, "backward", group.replicas, group="replica")
        rows.append((wire, shards, syncs if settings["requires_all_reduce"] else 1))
    return rows


def _calls(blocks: Iterable[Block], group: Group, *, trained: bool = False) -> list[Call]:
    """One call per unit."""
    found = [(block, block.trained if trained else block.members) for block in blocks]
    return [Call(block.count, gathered_cut(members, group.ranks)) for block, members in found if members]
