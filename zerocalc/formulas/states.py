"""Bytes of model states: parameters, gradients, optimizer states."""

from __future__ import annotations

from fractions import Fraction

from zerocalc.formulas.registry import formula
from zerocalc.units import ceil, ceil_div


@formula(symbol="M", unit="byte", source="zero-stages")
def state_bytes(*, num_params: int, bytes_per_param: int | Fraction, shards: int) -> int:
    """Bytes of one model state on the rank that holds most; `shards` is 1 where every rank keeps the whole."""
    return ceil(bytes_per_param * ceil_div(num_params, shards))


@formula(symbol="M_blk", unit="byte", source="zero-infinity-memory")
def gathered_bytes(*, unit_params: int, param_bytes: int | Fraction, grad_bytes: int | Fraction) -> int:
    """Bytes of the largest unit while it is whole on the GPU: its gathered parameters and their gradients."""
    return ceil(param_bytes * unit_params) + ceil(grad_bytes * unit_params)


@formula(symbol="Φ", unit="byte", source="zero-stages")
def floor_line_bytes(*, num_params: int, param_bytes: int | Fraction, model_parallel: int) -> int:
    """Bytes of whole parameters on one GPU, which neither ZeRO-1 nor ZeRO-2 can shrink."""
    return ceil(param_bytes * ceil_div(num_params, model_parallel))
