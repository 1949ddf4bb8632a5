"""Megatron's contiguous buffers: how many elements a part's parameters take, bucket by bucket."""

from __future__ import annotations

from math import lcm
from typing import TYPE_CHECKING, Any

from zerocalc.formulas.megatron import aligned_elements

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from zerocalc.layout import Layout
    from zerocalc.rank import Part, RankView

PARAM_ALIGNMENT = 64
BUCKET_ALIGNMENT = 128
WIDE_BUCKET_ALIGNMENT = 2**16


def buckets(view: RankView, part: Part, settings: Mapping[str, Any]) -> tuple[int, ...]:
    """Elements of each bucket of a part's buffer, padding included; one bucket unless reduction overlaps backward.

    A bare count is one bucket without padding. Later pipeline stages never split their buffer.
    """
    sharded = "optimizer_states" in view.strategy.shards
    if part.layout.anonymous or part.num_params != part.layout.num_params:
        return (int(part.num_params),)
    alignment = PARAM_ALIGNMENT if sharded else 1
    end = _bucket_divisor(int(part.shard_ranks), settings) if sharded else 1
    if not settings["overlap_grad_reduce"] or view.stage > 0:
        return (aligned_elements(num_elements=_packed(part.layout, alignment), alignment=end),)
    limit = settings["ddp_bucket_size"] or max(40_000_000, 1_000_000 * int(part.shard_ranks))
    return tuple(
        aligned_elements(num_elements=size, alignment=end) for size in _split(part.layout, alignment, limit)
    )


def buffer_elements(view: RankView, part: Part, settings: Mapping[str, Any]) -> int:
    """Elements of a part's whole buffer."""
    return sum(buckets(view, part, settings))


def _bucket_divisor(ranks: int, settings: Mapping[str, Any]) -> int:
    wide = WIDE_BUCKET_ALIGNMENT if settings["pad_buckets_for_high_nccl_busbw"] else BUCKET_ALIGNMENT
    return lcm(ranks, wide)


def _packed(layout: Layout, alignment: int) -> int:
    """Elements of all parameters one after the other, each start aligned."""
    return sum(
        count * aligned_elements(num_elements=tensor.numel, alignment=alignment)
        for tensor, count in layout.grouped()
    )


def _split(layout: Layout, alignment: int, limit: int) -> Iterator[int]:
    """Elements of each bucket: parameters are packed from the last to the first, a bucket closes once it is full."""
    size = 0
    for _, tensor in reversed(list(layout.named_tensors())):
        size += aligned_elements(num_elements=tensor.numel, alignment=alignment)
        if size >= limit:
            yield size
            size = 0
    if size:
        yield size
