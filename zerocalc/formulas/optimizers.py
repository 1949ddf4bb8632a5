"""Bytes of optimizer states whose size depends on a tensor's shape."""

from __future__ import annotations

from fractions import Fraction

from zerocalc.formulas.registry import formula
from zerocalc.units import ceil, ceil_div


@formula(symbol="M_elem", unit="byte", source="zero-stages")
def element_state_bytes(*, num_elements: int, bytes_per_element: int | Fraction, shards: int) -> int:
    """Bytes of a state with one element per element of the tensor, on the rank that holds most of it."""
    return ceil(bytes_per_element * ceil_div(num_elements, shards))


@formula(symbol="M_block", unit="byte", source="low-bit-optimizers")
def block_state_bytes(
    *, num_elements: int, bytes_per_element: int | Fraction, block: int, scale_bytes: int, shards: int
) -> int:
    """Bytes of a block-quantised state and its scales, one per `block` elements begun, on one rank."""
    return ceil(bytes_per_element * ceil_div(num_elements, shards)) + scale_bytes * ceil_div(
        ceil_div(num_elements, shards), block
    )


@formula(symbol="M_fac", unit="byte", source="adafactor")
def factored_state_bytes(
    *, matrices: int, rows: int, columns: int, bytes_per_element: int | Fraction, shards: int
) -> int:
    """Bytes of a second moment kept as one row and one column per matrix."""
    return ceil(bytes_per_element * ceil_div(matrices * (rows + columns), shards))
