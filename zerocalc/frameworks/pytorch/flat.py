"""How FSDP1 cuts a unit: all its tensors as one flat parameter, in equal shards."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from zerocalc.formulas.fsdp import flat_gathered_bytes, flat_shard_bytes, tensor_bytes
from zerocalc.frameworks.pytorch.model import local_layout
from zerocalc.frameworks.pytorch.states import Cut, Holding
from zerocalc.layout import Tensor
from zerocalc.units import ceil_div, dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zerocalc.frameworks.pytorch.model import Block, Group, Member, Setup
    from zerocalc.rank import Part

ALIGNMENT_BYTES = 16
"""Where `use_orig_params` lets a tensor begin in the flat parameter."""
SEARCHED_RANKS = 1024
"""How many ranks are looked at for the one that holds most original tensors; their bytes hardly differ."""

Members = tuple["Member", ...]


def pieces_of(setup: Setup, members: Members, ranks: int) -> Iterator[tuple[Tensor | None, int]]:
    """What a flat parameter consists of: tensors, and padding (None) where originals are aligned."""
    if not setup.settings["use_orig_params"]:
        yield from ((member.tensor, member.tensor.numel) for member in members)
        return
    aligned = int(ALIGNMENT_BYTES // dtype_bytes(setup.types.compute))
    offset = 0
    for member in members:
        if padding := -offset % aligned:
            yield None, padding
        yield member.tensor, member.tensor.numel
        offset += padding + member.tensor.numel
    if padding := -offset % ranks:
        yield None, padding


def unit_params(setup: Setup, members: Members, ranks: int) -> int:
    """Elements of a flat parameter, alignment included."""
    return sum(size for _, size in pieces_of(setup, members, ranks))


def gathered_cut(setup: Setup, members: Members, ranks: int) -> Cut:
    """One whole flat parameter."""
    size = unit_params(setup, members, ranks)
    return Cut(flat_gathered_bytes, ((1, {"unit_params": size, "ranks": ranks}),))


def holding_of(setup: Setup, group: Group, part: Part, rank: int | None) -> Holding:
    """What one rank holds of a part; with `use_orig_params` optimizer states follow the original tensors."""
    cut = _shards(setup, group, part)
    flat = [(n, _flat(ceil_div(inputs["unit_params"], group.ranks))) for n, inputs in cut.groups]
    optimizer, tensors, largest = cut, flat, None
    if setup.settings["use_orig_params"]:
        shares = _shares(setup, group, part, rank)
        tensors = max(shares, key=lambda own: (sum(n * t.numel for n, t in own), sum(n for n, _ in own)))
        largest = max((tensor.numel for own in shares for _, tensor in own), default=None)
        optimizer = Cut(tensor_bytes, tuple((n, {"num_params": tensor.numel}) for n, tensor in tensors))
    return Holding(
        part=part,
        params=cut,
        optimizer=optimizer,
        local=local_layout(tensors),
        num_tensors=sum(n for n, _ in tensors),
        largest=largest,
        shards=group.ranks,
        optimizer_shards=group.ranks,
        falls=group.replicas == 1,
    )


def _flat(numel: int) -> Tensor:
    return Tensor("flat_param", (numel,), kind="other")


def _shards(setup: Setup, group: Group, part: Part) -> Cut:
    """Shards of the flat parameters that a part's tensors make up."""
    groups = []
    for block in group.blocks:
        members = tuple(member for member in block.members if member.part.name == part.name)
        if members:
            size = unit_params(setup, members, group.ranks)
            groups.append((block.count, {"unit_params": size, "ranks": group.ranks}))
    return Cut(flat_shard_bytes, tuple(groups))


def _shares(setup: Setup, group: Group, part: Part, rank: int | None) -> list[list[tuple[int, Tensor]]]:
    """The pieces of a part's tensors on one rank, or on each of the first."""
    ranks = range(min(group.ranks, SEARCHED_RANKS)) if rank is None else [rank % group.ranks]
    return [
        [
            (block.count, piece)
            for block in group.blocks
            for piece in _own(setup, block, part, group.ranks, own)
        ]
        for own in ranks
    ]


def _own(setup: Setup, block: Block, part: Part, ranks: int, rank: int) -> list[Tensor]:
    """The pieces of a part's original tensors that lie in one rank's shard of a block."""
    mine = {id(member.tensor) for member in block.members if member.part.name == part.name}
    shard = ceil_div(unit_params(setup, block.members, ranks), ranks)
    offset, found = -rank * shard, []
    for tensor, size in pieces_of(setup, block.members, ranks):
        held = min(offset + size, shard) - max(offset, 0)
        offset += size
        if tensor is not None and held > 0 and id(tensor) in mine:
            found.append(replace(tensor, shape=(held,)))
    return found
