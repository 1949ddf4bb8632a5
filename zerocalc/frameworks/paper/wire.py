"""What one rank sends in an optimizer step: the strategy's passes, each counted as the papers count it."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from zerocalc.formulas.communication import all_reduce_sent_bytes, leg_sent_bytes, padded_bytes
from zerocalc.formulas.registry import apply
from zerocalc.formulas.states import state_bytes
from zerocalc.frameworks.terms import Collective
from zerocalc.strategies import LEGS, Pass
from zerocalc.units import DTYPE_BITS, dtype_bytes

if TYPE_CHECKING:
    from zerocalc.rank import Part, RankView


def collectives(view: RankView, part: Part, settings: dict[str, Any]) -> Iterator[Collective]:
    """What one part sends in an optimizer step."""
    for row in _active(view, settings):
        runs = not part.forward_only or row.phase == "forward"
        if runs and (part.trainable or not row.only_trainable):
            yield _collective(view, part, row, settings)


def _active(view: RankView, settings: dict[str, Any]) -> Iterator[Pass]:
    """The strategy's passes; one that a setting turns on replaces the plain pass of its phase and tensor."""
    on = [row for row in view.strategy.passes if row.setting and _turned_on(settings[row.setting])]
    replaced = {(p.phase, p.tensor) for p in on}
    for row in view.strategy.passes:
        if row in on or (row.setting is None and (row.phase, row.tensor) not in replaced):
            yield row


def _turned_on(value: bool | int | None) -> bool:
    """Whether a setting turns its pass on: true, or a group of more than one rank."""
    return value is True or (value is not None and value > 1)


def _collective(view: RankView, part: Part, row: Pass, settings: dict[str, Any]) -> Collective:
    native = part.param_dtype if row.tensor == "params" else part.reduce_dtype
    dtype = row.wire_dtype or native
    size = _group_size(view, part, row, settings)
    count = view.job.workload.grad_accum if row.every == "micro_step" else 1
    shards = _shards_sent(view, part, row)
    element = dtype_bytes(dtype) + (Fraction(4, settings["quant_block"]) if row.wire_dtype else 0)
    elements = -(-part.num_params // shards)
    if row.op == "all_reduce":
        full = apply(state_bytes, num_params=elements, bytes_per_param=element, shards=1)
        sent = apply(all_reduce_sent_bytes, count=count, full_bytes=full.value, ranks=size)
    else:
        full = apply(padded_bytes, num_params=elements, element_bytes=element, ranks=size)
        sent = apply(leg_sent_bytes, count=count, full_bytes=full.value, ranks=size)
    volume = _volume(view, part, row, count, shards if row.group == "replica" else 1)
    return Collective(
        op=row.op, tensor=row.tensor, dtype=dtype, part=part.name, phase=row.phase, group=row.group,
        group_size=size, count=count, full=full, sent=sent, volume_params=volume,
        inter_node_volume_params=0 if row.intra_node or _fits_node(view, row, size) else volume,
    )  # fmt: skip


def _group_size(view: RankView, part: Part, row: Pass, settings: dict[str, Any]) -> Any:
    """Ranks that take part in a pass."""
    per_node = _ranks_of_a_node(view, part)
    return {
        "shard": part.shard_ranks,
        "replica": part.replicas,
        "secondary": min(settings["hpz"] or 1, part.shard_ranks),
        "node": per_node,
        "across_nodes": max(1, part.shard_ranks // per_node),
    }[row.group]


def _ranks_of_a_node(view: RankView, part: Part) -> Any:
    """How many of a part's ranks share a node; all of them where its size is not known."""
    return min(view.job.parallelism.gpus_per_node or part.shard_ranks, part.shard_ranks)


def _shards_sent(view: RankView, part: Part, row: Pass) -> Any:
    """Into how many parts the tensor was cut before this pass sends one of them."""
    if not row.of_shard:
        return 1
    return _ranks_of_a_node(view, part) if row.group == "across_nodes" else part.shard_ranks


def _volume(view: RankView, part: Part, row: Pass, count: int, shards: int) -> Any:
    """Multiples of Ψ times the element size, as the papers print it."""
    native = part.param_dtype if row.tensor == "params" else part.reduce_dtype
    narrower = Fraction(DTYPE_BITS[row.wire_dtype or native], DTYPE_BITS[native])
    return LEGS[row.op] * count * narrower * part.num_params / view.num_model_params / shards


def _fits_node(view: RankView, row: Pass, size: int) -> bool:
    """Whether a pass stays inside one node: its ranks are neighbours and no more than the node has."""
    per_node = view.job.parallelism.gpus_per_node
    return per_node is not None and row.group not in {"replica", "across_nodes"} and size <= per_node
