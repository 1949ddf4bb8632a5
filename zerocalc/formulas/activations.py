"""Bytes that the forward pass keeps for the backward pass: one formula per way a saved tensor is cut up.

Which tensors a layer saves is data (`zerocalc.activations.terms`); how many bytes each one takes is decided here.
"""

from __future__ import annotations

from zerocalc.formulas.registry import formula
from zerocalc.units import ceil_div, smallest


@formula(symbol="A_seq", unit="byte", source="korthikanti-memory")
def token_tensor_bytes(*, tokens: int, width: int, bytes_per_element: int, sequence_parallel: int) -> int:
    """Bytes of a saved tensor that tensor parallelism repeats and sequence parallelism splits by tokens."""
    return ceil_div(tokens, sequence_parallel) * width * bytes_per_element


@formula(symbol="A_width", unit="byte", source="korthikanti-memory")
def split_tensor_bytes(*, tokens: int, width: int, bytes_per_element: int, tensor_parallel: int) -> int:
    """Bytes of a saved tensor whose width tensor parallelism splits, such as the inside of an MLP."""
    return tokens * ceil_div(width, tensor_parallel) * bytes_per_element


@formula(symbol="A_heads", unit="byte", source="korthikanti-memory")
def head_tensor_bytes(
    *, tokens: int, num_heads: int, head_dim: int, bytes_per_element: int, tensor_parallel: int
) -> int:
    """Bytes of a saved tensor with one vector per head; a rank holds whole heads, at least one."""
    return tokens * ceil_div(num_heads, tensor_parallel) * head_dim * bytes_per_element


@formula(symbol="A_scores", unit="byte", source="korthikanti-memory")
def score_tensor_bytes(
    *, tokens: int, num_heads: int, seq_len: int, bytes_per_element: int, tensor_parallel: int
) -> int:
    """Bytes of one saved matrix of attention scores; absent when the kernel does not store them."""
    return tokens * ceil_div(num_heads, tensor_parallel) * seq_len * bytes_per_element


@formula(symbol="A_whole", unit="byte", source="measured-activations")
def whole_tensor_bytes(*, num_elements: int, bytes_per_element: int) -> int:
    """Bytes of a small tensor that every rank holds whole: ids, a norm's scale, the loss."""
    return num_elements * bytes_per_element


@formula(symbol="A_table", unit="byte", source="measured-activations")
def position_table_bytes(*, seq_len: int, width: int, bytes_per_element: int) -> int:
    """Bytes of a table with one row per position, shared by all sequences of the batch."""
    return seq_len * width * bytes_per_element


@formula(symbol="A_cast", unit="byte", source="measured-activations")
def cast_weight_bytes(*, num_weights: int, bytes_per_element: int, tensor_parallel: int) -> int:
    """Bytes of the 16-bit copies of fp32 weights that autocast keeps from the forward to the backward pass."""
    return ceil_div(num_weights, tensor_parallel) * bytes_per_element


@formula(symbol="A_labels", unit="byte", source="measured-activations")
def shifted_label_bytes(*, micro_batch: int, seq_len: int, bytes_per_index: int) -> int:
    """Bytes of the labels moved by one position; a batch of one keeps the padded tensor itself, one longer."""
    return (micro_batch * seq_len + 1 // micro_batch) * bytes_per_index


@formula(symbol="A_padded", unit="byte", source="measured-activations")
def padded_label_bytes(*, micro_batch: int, seq_len: int, bytes_per_index: int) -> int:
    """Bytes of the padded labels from which the moved ones are copied; a batch of one needs no copy."""
    return (1 - 1 // micro_batch) * micro_batch * (seq_len + 1) * bytes_per_index


@formula(symbol="A_ckpt", unit="byte", source="korthikanti-memory")
def checkpoint_bytes(*, tokens: int, hidden_size: int, bytes_per_element: int, partitions: int) -> int:
    """Bytes of one layer's checkpoint, its input; partitioned by sequence parallelism or by ZeRO-R."""
    return ceil_div(tokens * hidden_size, partitions) * bytes_per_element


@formula(symbol="A_pcie", unit="byte", source="zero-r")
def checkpoint_offload_traffic_bytes(*, checkpoint_bytes: int) -> int:
    """Bytes between GPU and host per step when checkpoints are offloaded: once out, once back."""
    return 2 * checkpoint_bytes


@formula(symbol="V_Pa", unit="element", source="zero-r")
def partitioned_checkpoint_elements(*, tokens: int, hidden_size: int) -> int:
    """Elements that one all-gather moves to restore one partitioned checkpoint before its layer is recomputed."""
    return tokens * hidden_size


@formula(symbol="V_mp", unit="element", source="zero-r")
def tensor_parallel_block_elements(*, tokens: int, hidden_size: int) -> int:
    """Elements that tensor parallelism moves per block with recomputation: six all-reduces of two legs each."""
    return 12 * tokens * hidden_size


@formula(symbol="5as/h", unit="ratio", source="korthikanti-memory")
def attention_memory_ratio(*, num_heads: int, seq_len: int, hidden_size: int) -> float:
    """How many bytes per token and hidden element attention's score matrices add to the other 34 (a ratio)."""
    return 5 * num_heads * seq_len / hidden_size


@formula(symbol="m", unit="micro-batch", source="korthikanti-pipeline")
def micro_batches_in_flight(*, num_micro_batches: int, pipeline_parallel: int) -> int:
    """Micro-batches whose activations the first stage of a 1F1B pipeline holds at once."""
    return smallest(num_micro_batches, pipeline_parallel)


@formula(symbol="L_held", unit="layer", source="korthikanti-pipeline")
def interleaved_layers_held(*, num_layers: int, pipeline_parallel: int, model_chunks: int) -> int:
    """Layers' worth of activations on the first stage of an interleaved pipeline, L(1 + (p-1)/(pm))."""
    return ceil_div(num_layers, pipeline_parallel * model_chunks) * (
        pipeline_parallel * model_chunks + pipeline_parallel - 1
    )
