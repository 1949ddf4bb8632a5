"""Collectives of PyTorch: calls of different sizes as one row, with what one rank sends in all of them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from zerocalc.formulas.fsdp import all_reduce_call_sent_bytes, call_sent_bytes
from zerocalc.formulas.registry import apply_grouped
from zerocalc.frameworks.terms import Collective
from zerocalc.layout import held_bytes
from zerocalc.strategies import LEGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from zerocalc.frameworks.pytorch.states import Cut
    from zerocalc.rank import RankView


@dataclass(frozen=True, slots=True)
class Call:
    """`count` equal calls of one pass, each over the tensors of one cut."""

    count: int
    cut: Cut


class Wire(NamedTuple):
    """What the calls of a row share."""

    op: str
    tensor: str
    dtype: str
    phase: str
    ranks: int
    group: str = "shard"
    part: str = "dense"


Rows = list[tuple[Wire, list[Call], int]]
"""What is sent, in which calls, and in how many passes per optimizer step."""


def collectives(view: RankView, rows: Iterable[tuple[Wire, Sequence[Call], int]]) -> Iterator[Collective]:
    """One row for each pass that is made at least once."""
    for wire, calls, passes in rows:
        if calls and passes:
            yield _collective(view, wire, calls, passes)


def _collective(view: RankView, wire: Wire, calls: Sequence[Call], passes: int) -> Collective:
    element = held_bytes(wire.dtype)
    full = apply_grouped(
        calls[0].cut.formula,
        (
            (call.count * n, {**inputs, "element_bytes": element})
            for call in calls
            for n, inputs in call.cut.groups
        ),
    )
    sent = apply_grouped(
        all_reduce_call_sent_bytes if wire.op == "all_reduce" else call_sent_bytes,
        (
            (passes * call.count, {"full_bytes": call.cut.bytes_of(element).value, "ranks": wire.ranks})
            for call in calls
        ),
    )
    total = passes * int(full.value)
    volume = _volume(view, wire, total)
    return Collective(
        op=wire.op, tensor=wire.tensor, dtype=wire.dtype, part=wire.part, phase=wire.phase, group=wire.group,
        group_size=wire.ranks, count=passes * sum(call.count for call in calls), full=full, sent=sent,
        full_bytes_in_all=total, volume_params=volume,
        inter_node_volume_params=0 if _inside_node(view, wire) else volume,
    )  # fmt: skip


def _volume(view: RankView, wire: Wire, total: int) -> Fraction:
    """Multiples of Ψ times the size of the element that is sent."""
    return LEGS[wire.op] * total / (int(view.num_model_params) * Fraction(held_bytes(wire.dtype)))


def _inside_node(view: RankView, wire: Wire) -> bool:
    """Whether the ranks of a row are neighbours in one node."""
    per_node = view.job.parallelism.gpus_per_node
    return per_node is not None and wire.group != "replica" and wire.ranks <= per_node
