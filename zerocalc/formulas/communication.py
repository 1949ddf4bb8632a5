"""Bytes on the wire, by the ring algorithm: one leg of a collective passes every shard but one's own."""

from __future__ import annotations

from fractions import Fraction

from zerocalc.formulas.registry import formula
from zerocalc.units import ceil, ceil_div


@formula(symbol="S", unit="byte", source="ring")
def padded_bytes(*, num_params: int, element_bytes: int | Fraction, ranks: int) -> int:
    """Bytes of a tensor padded so that `ranks` equal shards of whole elements make it up."""
    return ranks * ceil(element_bytes * ceil_div(num_params, ranks))


@formula(symbol="B_leg", unit="byte", source="ring")
def leg_sent_bytes(*, count: int, full_bytes: int, ranks: int) -> int:
    """Bytes one rank sends in `count` all-gathers, reduce-scatters or all-to-alls of `full_bytes` each."""
    return count * (ranks - 1) * ceil_div(full_bytes, ranks)


@formula(symbol="B_ar", unit="byte", source="ring")
def all_reduce_sent_bytes(*, count: int, full_bytes: int, ranks: int) -> int:
    """Bytes one rank sends in `count` all-reduces, each a reduce-scatter followed by an all-gather."""
    return count * 2 * (ranks - 1) * ceil_div(full_bytes, ranks)
