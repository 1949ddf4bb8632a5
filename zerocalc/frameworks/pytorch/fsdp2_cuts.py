"""How FSDP2 cuts a tensor: along its first dimension, padded so that all ranks hold equally many rows."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from zerocalc.formulas.fsdp import gathered_rows_bytes, local_rows_bytes, padded_rows_bytes
from zerocalc.frameworks.pytorch.model import Group, Member, local_layout
from zerocalc.frameworks.pytorch.states import Cut, Holding
from zerocalc.units import ceil_div

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zerocalc.layout import Tensor
    from zerocalc.rank import Part


def rows_of(tensor: Tensor, ranks: int) -> dict[str, int]:
    """The inputs that say how a tensor is cut."""
    rows, *rest = tensor.shape or (1,)
    return {"rows": rows, "row_params": prod(rest), "ranks": ranks}


def padded_cut(tensors: Iterable[tuple[int, Tensor]], ranks: int) -> Cut:
    """Shards with their padding."""
    return Cut(padded_rows_bytes, tuple((n, rows_of(tensor, ranks)) for n, tensor in tensors))


def gathered_cut(members: Iterable[Member], ranks: int) -> Cut:
    """Whole tensors with their padding."""
    return Cut(gathered_rows_bytes, tuple((1, rows_of(member.tensor, ranks)) for member in members))


def local_tensor(tensor: Tensor, ranks: int, rank: int) -> Tensor:
    """The rows of a tensor that one rank has."""
    rows, *rest = tensor.shape or (1,)
    chunk = ceil_div(rows, ranks)
    return replace(tensor, shape=(min(chunk, max(0, rows - rank * chunk)), *rest))


def holding_of(group: Group, part: Part, rank: int) -> Holding:
    """What one rank holds of a part: padded parameters and gradients, optimizer states of its own rows."""
    tensors = list(group.tensors(part))
    own = rank % group.ranks
    rows = tuple((n, {**rows_of(tensor, group.ranks), "rank": own}) for n, tensor in tensors)
    return Holding(
        part=part,
        params=padded_cut(tensors, group.ranks),
        optimizer=Cut(local_rows_bytes, rows),
        local=local_layout((n, local_tensor(tensor, group.ranks, own)) for n, tensor in tensors),
        num_tensors=sum(n for n, _ in tensors),
        shards=group.ranks,
        optimizer_shards=group.ranks,
        falls=group.replicas == 1,
    )
