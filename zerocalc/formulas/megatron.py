"""What Megatron-LM and TransformerEngine do in their own way: padded buffers, placeholders, the interleaved schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocalc.formulas.registry import formula
from zerocalc.units import ceil, ceil_div, smallest

if TYPE_CHECKING:
    from fractions import Fraction


@formula(symbol="E_buf", unit="element", source="megatron-buffers")
def aligned_elements(*, num_elements: int, alignment: int) -> int:
    """Elements that a parameter, or a whole bucket, takes in a buffer in which the next one starts aligned."""
    return alignment * ceil_div(num_elements, alignment)


@formula(symbol="M_buf", unit="byte", source="megatron-optimizer")
def buffer_bytes(*, num_elements: int, element_bytes: int | Fraction, shards: int) -> int:
    """Bytes of a buffer, or of one rank's share of what belongs to it: parameters, main gradients, Adam's states."""
    return ceil(element_bytes * ceil_div(num_elements, shards))


@formula(symbol="M_wgrad", unit="byte", source="transformer-engine")
def weight_gradient_bytes(*, rows: int, columns: int, element_bytes: int | Fraction) -> int:
    """Bytes of one weight's gradient in the parameter's own type, or of the placeholder that stands for it."""
    return ceil(rows * columns * element_bytes)


@formula(symbol="M_ws", unit="byte", source="cublas-workspace")
def workspace_bytes(*, handles: int, bytes_per_handle: int, engine_bytes: int) -> int:
    """Bytes of cuBLAS workspaces, one per handle, and of the layers' own; backward's thread has its own handle."""
    return handles * bytes_per_handle + engine_bytes


@formula(symbol="m_v", unit="model chunk", source="megatron-schedule")
def chunks_in_flight(*, num_micro_batches: int, pipeline_parallel: int, stage: int, model_chunks: int) -> int:
    """Model chunks whose activations stage `stage` of an interleaved pipeline holds at once."""
    return smallest(
        num_micro_batches * model_chunks,
        2 * (pipeline_parallel - stage - 1) + (model_chunks - 1) * pipeline_parallel + 1,
    )
