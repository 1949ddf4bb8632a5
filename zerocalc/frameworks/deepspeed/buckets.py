"""Gradient buckets: in which order gradients arrive, where a bucket is full, and what each call then carries."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from zerocalc.units import ceil_div

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from zerocalc.frameworks.deepspeed.modules import Param


def fill(params: Iterable[Param], size: int) -> list[list[Param]]:
    """Collect gradients until the next one would not fit; one that is larger than the bucket goes alone."""
    buckets: list[list[Param]] = []
    elements = 0
    for param in params:
        if not buckets or elements + param.numel > size:
            buckets.append([])
            elements = 0
        buckets[-1].append(param)
        elements += param.numel
    return buckets


def cut_after(params: Iterable[Param], size: int) -> list[list[Param]]:
    """Collect gradients until more than `size` elements are together (stage 0)."""
    buckets: list[list[Param]] = [[]]
    elements = 0
    for param in params:
        buckets[-1].append(param)
        elements += param.numel
        if elements > size:
            buckets.append([])
            elements = 0
    return [bucket for bucket in buckets if bucket]


class Slice(NamedTuple):
    """Part of a tensor that belongs to one rank, or as much on each of several ranks that follow each other."""

    rank: int
    numel: int
    ranks: int = 1


class FlatGroup:
    """Tensors laid end to end and cut into equal partitions: which rank owns what."""

    def __init__(self, params: Iterable[Param], *, ranks: int, alignment: int, start_alignment: int) -> None:
        """`alignment`: elements a partition is a multiple of; `start_alignment`: elements a tensor starts on."""
        self.offsets: dict[str, int] = {}
        end = 0
        for param in params:
            start = start_alignment * ceil_div(end, start_alignment)
            self.offsets[param.name] = start
            end = start + param.numel
        self.num_elements = end
        self.ranks = ranks
        self.partition = alignment * ceil_div(end, alignment * ranks)

    def owners(self, param: Param) -> tuple[int, int]:
        """The first and the last rank that own a part of a tensor."""
        start = self.offsets[param.name]
        return start // self.partition, (start + param.numel - 1) // self.partition

    def slices(self, param: Param) -> Iterator[Slice]:
        """The parts of a tensor by owner, in order; between the first and the last they are whole partitions."""
        first, last = self.owners(param)
        start = self.offsets[param.name]
        if first == last:
            yield Slice(first, param.numel)
            return
        yield Slice(first, (first + 1) * self.partition - start)
        if last - first > 1:
            yield Slice(first + 1, self.partition, last - first - 1)
        yield Slice(last, start + param.numel - last * self.partition)

    def largest_slice(self, params: Iterable[Param]) -> int:
        """Elements of the largest part of one tensor that one rank owns."""
        return max(part.numel for param in params for part in self.slices(param))

    def largest_overlap(self, params: Iterable[Param], *, padded: bool) -> int:
        """Elements of whole tensors that overlap a partition, with its tail padding, on the rank that has most."""
        change: Counter[int] = Counter()
        for param in params:
            first, last = self.owners(param)
            change[first] += param.numel
            change[last + 1] -= param.numel
        edge = self.num_elements // self.partition
        if padded and edge < self.ranks:
            tail = (edge + 1) * self.partition - self.num_elements
            change[edge] += tail
            change[edge + 1] -= tail
        empty = self.partition if padded and edge + 1 < self.ranks else 0
        return max(empty, *accumulate(change[rank] for rank in sorted(change)))


def all_reduce_calls(bucket: list[Param], flat: FlatGroup, size: int) -> Counter[int]:
    """All-reduces of one bucket by their elements: neighbouring slices of one owner are merged, then sent up to `size`."""
    merged: list[Slice] = []
    for param in bucket:
        for part in flat.slices(param):
            if merged and merged[-1].ranks == 1 and merged[-1].rank == part.rank:
                merged[-1] = Slice(part.rank, merged[-1].numel + part.numel)
            else:
                merged.append(part)
    calls: Counter[int] = Counter()
    filling = 0
    for part in merged:
        filling = _send(calls, filling, part, size)
    calls[filling] += 1
    del calls[0]
    return calls


def _send(calls: Counter[int], filling: int, part: Slice, size: int) -> int:
    """Add slices to what is filling, a call whenever that exceeds `size`; what is filling afterwards."""
    left = part.ranks
    first = min(left, (size - filling) // part.numel + 1)
    filling += first * part.numel
    left -= first
    if filling > size:
        calls[filling] += 1
        together = size // part.numel + 1
        calls[together * part.numel] += left // together
        filling = left % together * part.numel
    return filling


def reduce_calls(bucket: list[Param], flat: FlatGroup) -> Counter[int]:
    """Reduces of one bucket by their elements, one for each rank that owns part of it."""
    owned: Counter[int] = Counter()
    calls: Counter[int] = Counter()
    for param in bucket:
        for part in flat.slices(param):
            if part.ranks > 1:
                calls[part.numel] += part.ranks
            else:
                owned[part.rank] += part.numel
    return calls + Counter(owned.values())


def round_robin(params: tuple[Param, ...], ranks: int) -> tuple[Param, ...]:
    """The order in which `round_robin_gradients` lays out a group: every N-th tensor together."""
    return tuple(param for rank in range(min(ranks, len(params))) for param in params[rank::ranks])
