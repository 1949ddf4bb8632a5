"""Seconds: collectives by latency and bandwidth, compute by FLOPs, and the bounds between which a step lies.

Bandwidths are bus bandwidths as nccl-tests prints them, one direction, per rank, in bytes per second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from zerocalc.formulas.registry import formula
from zerocalc.units import largest, smallest

if TYPE_CHECKING:
    from collections.abc import Callable


def tree_levels(ranks: int) -> int:
    """Levels of a binary tree over `ranks`: the logarithm of base two, rounded up."""
    return (ranks - 1).bit_length()


@formula(symbol="k", unit="ratio", source="ring")
def ring_factor(*, ranks: int) -> float:
    """Bus over algorithm bandwidth of one ring leg (a ratio): all-gather, reduce-scatter, all-to-all."""
    return (ranks - 1) / ranks


@formula(symbol="k", unit="ratio", source="ring")
def all_reduce_factor(*, ranks: int) -> float:
    """Bus over algorithm bandwidth of an all-reduce (a ratio), two ring legs."""
    return 2 * (ranks - 1) / ranks


@formula(symbol="k", unit="ratio", source="ring")
def rooted_factor(*, ranks: int) -> float:
    """Bus over algorithm bandwidth of a collective with a root (a ratio): one whatever the ranks."""
    return ranks / ranks


@formula(symbol="k", unit="ratio", source="ring")
def in_network_factor(*, ranks: int) -> float:
    """Bus over algorithm bandwidth of an all-reduce done in the switches (a ratio)."""
    return (ranks - 1) / (ranks + 1)


BUS_FACTORS: dict[str, Callable[..., float]] = {
    "all_reduce": all_reduce_factor,
    "all_gather": ring_factor,
    "reduce_scatter": ring_factor,
    "all_to_all": ring_factor,
    "broadcast": rooted_factor,
    "reduce": rooted_factor,
    "send_recv": rooted_factor,
    "all_reduce_in_network": in_network_factor,
}
"""How nccl-tests turns algorithm bandwidth (size over time) into bus bandwidth, by operation."""


@formula(symbol="t_coll", unit="s", source="ring")
def collective_s(*, full_bytes: int, bus_factor: float, bandwidth_bytes_per_s: float) -> float:
    """Seconds of a large collective from its bus bandwidth; latency is not counted."""
    return bus_factor * full_bytes / bandwidth_bytes_per_s


@formula(symbol="t_leg", unit="s", source="alpha-beta")
def ring_leg_s(*, full_bytes: int, ranks: int, latency_s: float, bandwidth_bytes_per_s: float) -> float:
    """Seconds of a ring all-gather or reduce-scatter."""
    return (ranks - 1) * latency_s + (ranks - 1) / ranks * full_bytes / bandwidth_bytes_per_s


@formula(symbol="t_ring", unit="s", source="alpha-beta")
def ring_all_reduce_s(
    *, full_bytes: int, ranks: int, latency_s: float, bandwidth_bytes_per_s: float
) -> float:
    """Seconds of a ring all-reduce."""
    return 2 * (ranks - 1) * latency_s + 2 * (ranks - 1) / ranks * full_bytes / bandwidth_bytes_per_s


@formula(symbol="t_tree", unit="s", source="double-tree")
def tree_all_reduce_s(
    *, full_bytes: int, levels: int, latency_s: float, bandwidth_bytes_per_s: float
) -> float:
    """Seconds of a pipelined double-tree all-reduce, from above: large ones come close to the ring."""
    return 2 * levels * latency_s + 2 * full_bytes / bandwidth_bytes_per_s


@formula(symbol="t_hd", unit="s", source="alpha-beta")
def halving_doubling_all_reduce_s(
    *, full_bytes: int, ranks: int, levels: int, latency_s: float, bandwidth_bytes_per_s: float
) -> float:
    """Seconds of a recursive halving and doubling all-reduce; `ranks` a power of two."""
    return 2 * levels * latency_s + 2 * (ranks - 1) / ranks * full_bytes / bandwidth_bytes_per_s


@formula(symbol="t_hier", unit="s", source="alpha-beta")
def hierarchical_all_reduce_s(
    *,
    full_bytes: int,
    ranks_per_node: int,
    num_nodes: int,
    node_bandwidth_bytes_per_s: float,
    nic_bandwidth_bytes_per_s: float,
) -> float:
    """Seconds of reduce-scatter in the node, all-reduce of the shards across, all-gather in the node; no latency."""
    return (
        2 * (ranks_per_node - 1) / ranks_per_node * full_bytes / node_bandwidth_bytes_per_s
        + 2 * (num_nodes - 1) / num_nodes * full_bytes / ranks_per_node / nic_bandwidth_bytes_per_s
    )


@formula(symbol="t_hier_leg", unit="s", source="alpha-beta")
def hierarchical_leg_s(
    *,
    full_bytes: int,
    ranks_per_node: int,
    num_nodes: int,
    node_bandwidth_bytes_per_s: float,
    network_bytes_per_s: float,
) -> float:
    """Seconds of one leg in two hops, inside the nodes and then shard by shard across all their NICs; no latency."""
    return (
        (ranks_per_node - 1) / ranks_per_node * full_bytes / node_bandwidth_bytes_per_s
        + (num_nodes - 1) / num_nodes * full_bytes / network_bytes_per_s
    )  # fmt: skip


@formula(symbol="t_flat", unit="s", source="ring")
def flat_ring_leg_s(
    *,
    full_bytes: int,
    ranks: int,
    node_bandwidth_bytes_per_s: float,
    nics_per_node: int,
    nic_bandwidth_bytes_per_s: float,
) -> float:
    """Seconds of one ring leg over nodes that use every NIC as a rail: the node, not the GPU, owns that rate."""
    return (
        (ranks - 1)
        / ranks
        * full_bytes
        / smallest(node_bandwidth_bytes_per_s, nics_per_node * nic_bandwidth_bytes_per_s)
    )


@formula(symbol="F_lin", unit="FLOP", source="scaling-flops")
def linear_flops(*, matmul_params: int, tokens: int, recomputed_forwards: int) -> int:
    """FLOPs of all matrix multiplications with weights: two per parameter and token forward, four backward."""
    return (6 + 2 * recomputed_forwards) * matmul_params * tokens


@formula(symbol="F_frozen", unit="FLOP", source="scaling-flops")
def frozen_linear_flops(*, matmul_params: int, tokens: int, recomputed_forwards: int) -> int:
    """FLOPs of multiplications with frozen weights: no gradient of the weight, so two fewer in backward."""
    return (4 + 2 * recomputed_forwards) * matmul_params * tokens


@formula(symbol="F_attn", unit="FLOP", source="scaling-flops")
def attention_flops(
    *, num_layers: int, num_heads: int, head_dim: int, seq_len: int, tokens: int, recomputed_forwards: int
) -> int:
    """FLOPs of attention's two products, forward and backward, the whole square counted (no causal discount)."""
    return (12 + 4 * recomputed_forwards) * num_layers * num_heads * head_dim * seq_len * tokens


@formula(symbol="F_causal", unit="FLOP", source="scaling-flops")
def causal_attention_flops(
    *, num_layers: int, num_heads: int, head_dim: int, seq_len: int, tokens: int, recomputed_forwards: int
) -> int:
    """FLOPs of attention's two products when the upper triangle is skipped: half of the whole square."""
    return (6 + 2 * recomputed_forwards) * num_layers * num_heads * head_dim * seq_len * tokens


@formula(symbol="F_tt", unit="FLOP", source="torchtitan-flops")
def torchtitan_flops(
    *,
    matmul_params: int,
    num_layers: int,
    num_heads: int,
    query_key_dim: int,
    value_dim: int,
    seq_len: int,
    tokens: int,
) -> int:
    """FLOPs as torchtitan counts them for its MFU: no causal discount, no recomputation."""
    return (6 * matmul_params + 6 * num_layers * num_heads * (query_key_dim + value_dim) * seq_len) * tokens


@formula(symbol="T*", unit="token", source="derived-crossover")
def hiding_tokens(
    *,
    bytes_per_param: float,
    flops_per_param_token: float,
    num_params: int,
    active_params: int,
    ranks: int,
    flops_per_s: float,
    bandwidth_bytes_per_s: float,
) -> float:
    """Tokens per GPU and micro-step from which compute hides a sharded model's traffic (linear layers only)."""
    return (
        bytes_per_param
        / flops_per_param_token
        * (num_params / active_params)
        * ((ranks - 1) / ranks)
        * (flops_per_s / bandwidth_bytes_per_s)
    )


@formula(symbol="T*_ar", unit="token", source="derived-crossover")
def replica_hiding_tokens(
    *,
    grad_bytes: float,
    flops_per_param_token: float,
    shard_size: int,
    replicas: int,
    flops_per_s: float,
    bandwidth_bytes_per_s: float,
) -> float:
    """Tokens per GPU and micro-step from which compute hides HSDP's all-reduce of shards across replicas."""
    return (
        2 * grad_bytes / shard_size * ((replicas - 1) / replicas) / flops_per_param_token
        * (flops_per_s / bandwidth_bytes_per_s)
    )  # fmt: skip


@formula(symbol="t_comp", unit="s", source="derived-crossover")
def compute_s(*, flops: int, flops_per_s: float, utilization: float) -> float:
    """Seconds of compute at a share of peak (`utilization` 1 is the peak itself)."""
    return flops / (flops_per_s * utilization)


@formula(symbol="t_low", unit="s", source="derived-crossover")
def lower_bound_s(*, peak_compute_s: float, communication_s: float) -> float:
    """Seconds below which no step can go: everything overlapped, compute at peak."""
    return largest(peak_compute_s, communication_s)


@formula(symbol="t_high", unit="s", source="derived-crossover")
def upper_bound_s(*, compute_s: float, communication_s: float) -> float:
    """Seconds above which a step should not go: nothing overlapped, compute at the assumed utilization."""
    return compute_s + communication_s


@formula(symbol="t_exposed", unit="s", source="derived-crossover")
def exposed_floor_s(*, first_gather_s: float, last_reduce_s: float, micro_steps: int) -> float:
    """Seconds of communication that nothing can hide: each micro-step's first gather and last reduction."""
    return micro_steps * (first_gather_s + last_reduce_s)


@formula(symbol="t_trail", unit="s", source="derived-crossover")
def trailing_gather_s(
    *, num_params: int, param_bytes: float, ranks: int, bandwidth_bytes_per_s: float
) -> float:
    """Seconds of ZeRO-1/2's all-gather after the update, which waits for it and is not overlapped."""
    return param_bytes * num_params * (ranks - 1) / ranks / bandwidth_bytes_per_s


@formula(symbol="R", unit="token/s", source="derived-crossover")
def tokens_per_s(*, tokens_per_step: int, step_s: float) -> float:
    """Tokens per second of all GPUs together."""
    return tokens_per_step / step_s


@formula(symbol="t_train", unit="s", source="derived-crossover")
def training_s(*, total_tokens: int, tokens_per_s: float) -> float:
    """Seconds to see `total_tokens`."""
    return total_tokens / tokens_per_s


@formula(symbol="H", unit="GPU-hour", source="derived-crossover")
def gpu_hours(*, num_gpus: int, seconds: float, seconds_per_hour: int) -> float:
    """GPU-hours: what a run is billed for."""
    return num_gpus * seconds / seconds_per_hour


class Pass(NamedTuple):
    """What a phase of a step moves and computes per parameter: bytes on the wire, and FLOPs per token."""

    grad_legs: int
    param_legs: int
    flops_per_param_token: int


CROSSOVERS: dict[str, Pass] = {
    "zero3": Pass(grad_legs=1, param_legs=2, flops_per_param_token=6),
    "zero3-recompute": Pass(grad_legs=1, param_legs=2, flops_per_param_token=8),
    "zero3-forward": Pass(grad_legs=0, param_legs=1, flops_per_param_token=2),
    "zero3-backward": Pass(grad_legs=1, param_legs=1, flops_per_param_token=4),
    "zero3-backward-recompute": Pass(grad_legs=1, param_legs=1, flops_per_param_token=6),
    "ddp-backward": Pass(grad_legs=2, param_legs=0, flops_per_param_token=4),
    "zero2-backward": Pass(grad_legs=1, param_legs=0, flops_per_param_token=4),
}
"""What must be hidden behind what, by strategy and phase: rows for `hiding_tokens`."""


@formula(symbol="b", unit="byte/param", source="derived-crossover")
def moved_bytes_per_param(*, grad_legs: int, grad_bytes: float, param_legs: int, param_bytes: float) -> float:
    """Bytes per parameter that a rank sends, before the ring's (N-1)/N."""
    return grad_legs * grad_bytes + param_legs * param_bytes
