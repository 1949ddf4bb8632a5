"""Gradient buckets: in which order gradients arrive, where a bucket is full, and what each call then carries."""

from __future__ import annotations

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
    """Part of a tensor that belongs to one rank."""

    rank: int
    numel: int


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

    def slices(self, param: Param) -> Iterator[Slice]:
        """The parts of a tensor by owner, in order."""
        start = self.offsets[param.name]
        end = start + param.numel
        for rank in range(start // self.partition, ceil_div(end, self.partition)):
            low, high = rank * self.partition, (rank + 1) * self.partition
            yield Slice(rank, min(end, high) - max(start, low))

    def largest_slice(self, params: Iterable[Param]) -> int:
        """Elements of the largest part of one tensor that one rank owns."""
        return max(part.numel for param in params for part in self.slices(param))

    def largest_overlap(self, params: Iterable[Param], *, padded: bool) -> int:
        """Elements of whole tensors that overlap a partition, with its tail padding, on the rank that has most."""
        overlap = [0] * self.ranks
        for param in params:
            for part in self.slices(param):
                overlap[part.rank] += param.numel
        if padded:
            for rank in range(self.ranks):
                low, high = rank * self.partition, (rank + 1) * self.partition
                overlap[rank] += max(0, high - max(self.num_elements, low))
        return max(overlap)


def all_reduce_calls(bucket: list[Param], flat: FlatGroup, size: int) -> list[int]:
    """Elements per all-reduce of one bucket: neighbouring slices of one owner are merged, then sent up to `size`."""
    merged: list[Slice] = []
    for param in bucket:
        for part in flat.slices(param):
            if merged and merged[-1].rank == part.rank:
                merged[-1] = Slice(part.rank, merged[-1].numel + part.numel)
            else:
                merged.append(part)
    calls = [0]
    for part in merged:
        calls[-1] += part.numel
        if calls[-1] > size:
            calls.append(0)
    return [elements for elements in calls if elements]


def reduce_calls(bucket: list[Param], flat: FlatGroup) -> list[int]:
    """Elements per reduce of one bucket, one call for each rank that owns part of it."""
    owned: dict[int, int] = {}
    for param in bucket:
        for part in flat.slices(param):
            owned[part.rank] = owned.get(part.rank, 0) + part.numel
    return list(owned.values())


def round_robin(params: tuple[Param, ...], ranks: int) -> tuple[Param, ...]:
    """The order in which `round_robin_gradients` lays out a group: every N-th tensor together."""
    return tuple(param for rank in range(ranks) for param in params[rank::ranks])
