"""Bytes of tensors as PyTorch keeps and sends them: whole, by padded rows (FSDP2), or cut from a flat one (FSDP1)."""

from __future__ import annotations

from fractions import Fraction

from zerocalc.formulas.registry import formula
from zerocalc.units import ceil, ceil_div, largest, smallest


@formula(symbol="M", unit="byte", source="torch-ddp")
def tensor_bytes(*, num_params: int, element_bytes: int | Fraction) -> int:
    """Bytes of a tensor that is held or sent whole."""
    return ceil(num_params * element_bytes)


@formula(symbol="M_step", unit="byte", source="torch-adamw")
def counter_bytes(*, num_tensors: int, counter_bytes_each: int) -> int:
    """Bytes of an optimizer's step counters, one per tensor it updates."""
    return num_tensors * counter_bytes_each


@formula(symbol="M_pad", unit="byte", source="torch-fsdp2")
def padded_rows_bytes(*, rows: int, row_params: int, element_bytes: int | Fraction, ranks: int) -> int:
    """Bytes of one rank's shard of a tensor, its rows padded so that every rank holds equally many."""
    return ceil(ceil_div(rows, ranks) * row_params * element_bytes)


@formula(symbol="M_row", unit="byte", source="torch-fsdp2")
def local_rows_bytes(
    *, rows: int, row_params: int, element_bytes: int | Fraction, ranks: int, rank: int
) -> int:
    """Bytes of the rows that rank number `rank` really has, without padding."""
    return ceil(
        smallest(ceil_div(rows, ranks), largest(0, rows - rank * ceil_div(rows, ranks)))
        * row_params
        * element_bytes
    )


@formula(symbol="S_pad", unit="byte", source="torch-fsdp2")
def gathered_rows_bytes(*, rows: int, row_params: int, element_bytes: int | Fraction, ranks: int) -> int:
    """Bytes of a whole tensor with its rows padded, as it is gathered or reduced."""
    return ranks * ceil(ceil_div(rows, ranks) * row_params * element_bytes)


@formula(symbol="M_flat", unit="byte", source="torch-fsdp1")
def flat_shard_bytes(*, unit_params: int, element_bytes: int | Fraction, ranks: int) -> int:
    """Bytes of one rank's shard of a unit's flat parameter, padded so that all shards are equal."""
    return ceil(ceil_div(unit_params, ranks) * element_bytes)


@formula(symbol="S_flat", unit="byte", source="torch-fsdp1")
def flat_gathered_bytes(*, unit_params: int, element_bytes: int | Fraction, ranks: int) -> int:
    """Bytes of a unit's whole flat parameter, padding included, as it is gathered or reduced."""
    return ranks * ceil(ceil_div(unit_params, ranks) * element_bytes)


@formula(symbol="M_tmp", unit="byte", source="torch-adamw")
def temporary_bytes(*, num_params: int, element_bytes: int | Fraction, copies: int) -> int:
    """Bytes of an optimizer's temporaries: so many copies of what it updates at once."""
    return ceil(copies * num_params * element_bytes)


@formula(symbol="M_grad", unit="byte", source="measured-torch")
def norm_backward_bytes(*, tokens: int, hidden_size: int, bytes_per_hidden: int) -> int:
    """Bytes that live while a norm's gradient is computed: its fp32 tensors and the gradient of the residual."""
    return tokens * hidden_size * bytes_per_hidden


@formula(symbol="B_call", unit="byte", source="ring")
def call_sent_bytes(*, full_bytes: int, ranks: int) -> int:
    """Bytes one rank sends, on average, in one ring all-gather, reduce-scatter or broadcast."""
    return (ranks - 1) * ceil_div(full_bytes, ranks)


@formula(symbol="B_call2", unit="byte", source="ring")
def all_reduce_call_sent_bytes(*, full_bytes: int, ranks: int) -> int:
    """Bytes one rank sends in one ring all-reduce: a reduce-scatter and an all-gather."""
    return 2 * (ranks - 1) * ceil_div(full_bytes, ranks)
