"""The end of the backward pass: which gradients, copies and gathered parameters stand together when buckets are flushed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from zerocalc.frameworks.deepspeed.buckets import fill

if TYPE_CHECKING:
    from zerocalc.frameworks.deepspeed.buckets import FlatGroup
    from zerocalc.frameworks.deepspeed.engine import Engine
    from zerocalc.frameworks.deepspeed.modules import Param


class Tail(NamedTuple):
    """Elements alive at the end of backward beside buckets and partitions."""

    grads: int
    """Gradients that lie in no bucket: the last tensor's, thrice while a tied matrix adds up two of them."""
    copies: int
    """What a call copies its slices into."""


def uses_of(engine: Engine, name: str) -> int:
    """Modules that own a parameter: more than one when it is tied."""
    return sum(any(param.name == name for param in module.params) for module in engine.root.walk())


def stage3_tail(engine: Engine, ranks: int) -> Tail:
    """The worst of three moments: a tied gradient is added up, the last bucket but one is flushed, or the last one."""
    size = engine.settings["reduce_bucket_size"]
    arriving = engine.gradient_order
    *_, previous, final = [[], *fill(arriving, size)]
    last = arriving[-1]
    alone = last.numel if last.numel > size else 0
    moments = [
        Tail(last.numel, _interleaved(previous, ranks)),
        Tail(alone, _interleaved(final, ranks)),
    ]
    if uses_of(engine, last.name) > 1:
        moments.append(Tail(3 * last.numel, 0))
    return max(moments, key=sum)


def _interleaved(bucket: list[Param], ranks: int) -> int:
    """A reduce-scatter of one tensor that divides evenly works in place; any other copies the bucket."""
    in_place = len(bucket) == 1 and bucket[0].numel % ranks == 0
    return 0 if in_place else sum(param.numel for param in bucket)


def _flattened(bucket: list[Param], flat: FlatGroup) -> int:
    """An all-reduce of slices of several ranks copies them into one tensor."""
    owners = {rank for param in bucket for rank in flat.owners(param)}
    return sum(param.numel for param in bucket) if len(owners) > 1 else 0


def stage2_tail(engine: Engine, flat: FlatGroup, arriving: list[Param], overlap: int) -> Tail:
    """The last bucket is flushed; with one bucket in all there is no partition yet, which `overlap` takes off again."""
    size = engine.settings["reduce_bucket_size"]
    buckets = fill(arriving, size)
    last = arriving[-1]
    alone = last.numel if last.numel > size else 0
    if uses_of(engine, last.name) > 1:
        alone = 3 * last.numel
    copied = _flattened(buckets[-1], flat)
    return Tail(
        alone or last.numel * (len(buckets) > 1), max(0, copied - overlap) if len(buckets) == 1 else copied
    )


def stage1_partition(engine: Engine, flat: FlatGroup, params: list[Param], overlap: int) -> int:
    """Elements held beyond all gradients while stage 1 moves them through its bucket into the partition.

    What fits the bucket is freed as it is copied there; a larger tensor once it was reduced.
    """
    size = engine.settings["reduce_bucket_size"]
    whole = remaining = sum(param.numel for param in params)
    worst = whole
    for index, bucket in enumerate(fill(params, size)):
        moved = sum(param.numel for param in bucket)
        if moved <= size:
            remaining -= moved
        reducing = remaining + _flattened(bucket, flat) + (overlap if index else 0)
        worst = max(worst, reducing, remaining + overlap)
        if moved > size:
            remaining -= moved
    return worst - whole
