"""Bytes as DeepSpeed allocates and sends them: flat groups, tensors dealt one by one, buckets, swap buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocalc.formulas.registry import formula
from zerocalc.units import ceil, ceil_div, largest

if TYPE_CHECKING:
    from fractions import Fraction


@formula(symbol="B_el", unit="byte", source="deepspeed-engine")
def element_bytes(*, num_elements: int, bytes_per_element: int | Fraction) -> int:
    """Bytes of elements that lie whole on a rank, or travel in one call."""
    return ceil(bytes_per_element * num_elements)


@formula(symbol="B_buf", unit="byte", source="deepspeed-engine")
def buffer_bytes(*, buffers: int, num_elements: int, bytes_per_element: int | Fraction) -> int:
    """Bytes of equal buffers, full or not."""
    return ceil(buffers * bytes_per_element * num_elements)


@formula(symbol="P_flat", unit="byte", source="deepspeed-stage12")
def flat_group_bytes(
    *, num_elements: int, bytes_per_element: int | Fraction, alignment: int, ranks: int
) -> int:
    """Bytes of a parameter group laid end to end and padded so that every rank's partition is aligned."""
    return ceil(bytes_per_element * alignment * ranks * ceil_div(num_elements, alignment * ranks))


@formula(symbol="P_part", unit="byte", source="deepspeed-stage12")
def flat_partition_bytes(
    *, num_elements: int, bytes_per_element: int | Fraction, alignment: int, ranks: int
) -> int:
    """Bytes of one rank's partition of a padded flat group."""
    return ceil(bytes_per_element * alignment * ceil_div(num_elements, alignment * ranks))


@formula(symbol="P3", unit="byte", source="deepspeed-stage3")
def tensor_shard_bytes(*, num_elements: int, bytes_per_element: int | Fraction, ranks: int) -> int:
    """Bytes of one rank's share of one tensor; every tensor is padded for itself."""
    return ceil(bytes_per_element * ceil_div(num_elements, ranks))


@formula(symbol="P3_all", unit="byte", source="deepspeed-stage3")
def padded_tensor_bytes(*, num_elements: int, bytes_per_element: int | Fraction, ranks: int) -> int:
    """Bytes of one tensor gathered from its equal, padded shares."""
    return ceil(bytes_per_element * ranks * ceil_div(num_elements, ranks))


@formula(symbol="P3_hpz", unit="byte", source="deepspeed-zeropp")
def secondary_shard_bytes(
    *, num_elements: int, bytes_per_element: int | Fraction, ranks: int, group: int
) -> int:
    """Bytes of one rank's share of the secondary copy that a small group keeps of one tensor."""
    return ceil(bytes_per_element * (ranks * ceil_div(num_elements, ranks) // group))


@formula(symbol="B_swap", unit="byte", source="deepspeed-nvme")
def swap_buffer_bytes(
    *, buffers: int, num_elements: int, bytes_per_element: int | Fraction, alignment: int
) -> int:
    """Bytes of the pinned buffers between NVMe and the host, each rounded up to whole I/O blocks of elements."""
    return ceil(buffers * bytes_per_element * alignment * ceil_div(num_elements, alignment))


@formula(symbol="E_whole", unit="byte", source="deepspeed-estimator")
def estimator_whole_bytes(*, num_params: int, bytes_per_param: int) -> int:
    """Bytes of what DeepSpeed's estimators count whole on every GPU."""
    return bytes_per_param * num_params


@formula(symbol="E_share", unit="byte", source="deepspeed-estimator")
def estimator_share_bytes(*, num_params: int, counted_bytes: int, bytes_per_param: int, gpus: int) -> int:
    """Bytes of one state that DeepSpeed's estimators divide by the GPUs, rounded together with those counted before."""
    return (counted_bytes + bytes_per_param) * num_params // gpus - counted_bytes * num_params // gpus


@formula(symbol="E_layer", unit="byte", source="deepspeed-estimator")
def estimator_layer_bytes(*, largest_layer_params: int, bytes_per_param: int) -> int:
    """Bytes of the largest module, gathered, with its gradients."""
    return bytes_per_param * largest_layer_params


@formula(symbol="E_cpu", unit="byte", source="deepspeed-estimator")
def estimator_host_bytes(
    *,
    loaded_params: int,
    processes: int,
    num_params: int,
    steady_bytes: int,
    nodes: int,
    buffer_factor: Fraction,
    ranks_on_node: int,
) -> int:
    """One rank's share of the bytes that DeepSpeed's estimators print for the host of a node."""
    return ceil_div(
        buffer_factor * largest(4 * loaded_params * processes * nodes, steady_bytes * num_params) // nodes,
        ranks_on_node,
    )
