"""Memory, traffic and time of states kept on the host or on NVMe: ZeRO-Offload, ZeRO-Infinity, and who copies more.

What the frameworks really copy is data: `OFFLOAD_TRAFFIC`, `OFFLOAD_PLACEMENTS`, `NVME_BYTES_PER_PARAM`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from zerocalc.formulas.registry import formula
from zerocalc.units import ceil, ceil_div, largest, smallest

if TYPE_CHECKING:
    from fractions import Fraction


class Placement(NamedTuple):
    """One way to part model states between GPU and host: which of them move, and what stays on the GPU."""

    grads_on_host: bool
    optimizer_on_host: bool
    gpu_bytes_per_param: int


OFFLOAD_PLACEMENTS: dict[str, Placement] = {
    "baseline": Placement(False, False, 16),
    "grads": Placement(True, False, 14),
    "optimizer": Placement(False, True, 4),
    "zero-offload": Placement(True, True, 2),
}
"""ZeRO-Offload's table 1. Its last row prints 4M beside a saving of 8 times; 2M is what 8 times means."""


class Traffic(NamedTuple):
    """Bytes per sharded parameter that cross PCIe, per micro-step and once per optimizer step."""

    to_host_per_micro_step: int
    from_host_per_micro_step: int
    to_host_per_step: int
    from_host_per_step: int
    source: str


OFFLOAD_TRAFFIC: dict[str, Traffic] = {
    # The least possible: 16-bit gradients down, 16-bit parameters up.
    "ideal": Traffic(0, 0, 2, 2, "zero-offload"),
    # fully_shard copies the fp32 shard up before it casts, in forward and again in backward; fp32 gradients go down.
    "fsdp2": Traffic(4, 8, 0, 0, "fsdp2-offload"),
    # Stage 3: the boundary moves gradients down (2), up (2), and down again in fp32 (4); parameters come up (2).
    "deepspeed-zero3": Traffic(0, 0, 6, 4, "deepspeed-offload"),
    # Layer-to-layer execution streams every state through the GPU, seven times the least; half of it each way.
    "l2l": Traffic(0, 0, 14, 14, "zero-offload"),
}

NVME_BYTES_PER_PARAM: dict[str, int] = {
    "deepspeed-optimizer": 16,  # fp32 parameter, two moments, fp32 gradient
    "deepspeed-optimizer-and-params": 18,  # and the 16-bit parameter
    "zero-infinity": 20,  # the paper counts the 16-bit gradient too
}


class AdamTime(NamedTuple):
    """One row of ZeRO-Offload's table 4: seconds of one update on a DGX-2."""

    num_params: int
    cpu_adam_s: float
    pytorch_cpu_s: float
    pytorch_gpu_s: float


CPU_ADAM_TIMES: tuple[AdamTime, ...] = (
    AdamTime(1_000_000_000, 0.22, 1.39, 0.10),
    AdamTime(2_000_000_000, 0.51, 2.75, 0.26),
    AdamTime(4_000_000_000, 1.03, 5.71, 0.64),
    AdamTime(8_000_000_000, 2.41, 11.93, 0.87),
    AdamTime(10_000_000_000, 2.57, 14.76, 1.00),
)


@formula(symbol="M_gpu", unit="byte", source="zero-offload")
def offload_gpu_bytes(*, num_params: int, bytes_per_param: int) -> int:
    """Bytes that stay on every GPU: parameters, which ZeRO-2 does not shard."""
    return bytes_per_param * num_params


@formula(symbol="M_host", unit="byte", source="zero-offload")
def offload_host_bytes(*, num_params: int, bytes_per_param: int, ranks: int) -> int:
    """Bytes that one rank keeps in host memory: its shard of the states that moved there."""
    return bytes_per_param * ceil_div(num_params, ranks)


@formula(symbol="B_pcie", unit="byte", source="zero-offload")
def offload_traffic_bytes(
    *, num_params: int, ranks: int, bytes_per_micro_step: int, micro_steps: int, bytes_per_step: int
) -> int:
    """Bytes one rank moves over PCIe in one direction per optimizer step."""
    return ceil_div(num_params, ranks) * (bytes_per_micro_step * micro_steps + bytes_per_step)


@formula(symbol="M_host", unit="byte", source="deepspeed-twinflow")
def twin_flow_host_bytes(*, num_params: int, ranks: int, bytes_per_param: int, ratio: int | Fraction) -> int:
    """Bytes of optimizer states on the host when a share `ratio` of the parameters is updated there."""
    return ceil(ratio * bytes_per_param * ceil_div(num_params, ranks))


@formula(symbol="M_gpu", unit="byte", source="deepspeed-twinflow")
def twin_flow_gpu_bytes(*, num_params: int, ranks: int, bytes_per_param: int, ratio: int | Fraction) -> int:
    """Bytes of optimizer states left on the GPU when a share `ratio` of the parameters is updated on the host."""
    return ceil((1 - ratio) * bytes_per_param * ceil_div(num_params, ranks))


@formula(symbol="T_hide", unit="token", source="zero-offload")
def offload_hiding_tokens(
    *, bytes_per_param: float, flops_per_s: float, flops_per_param_token: float, bandwidth_bytes_per_s: float
) -> float:
    """Tokens per GPU and optimizer step from which compute hides the traffic; derived from 4M bytes per step."""
    return bytes_per_param * flops_per_s / (flops_per_param_token * bandwidth_bytes_per_s)


@formula(symbol="T_adam", unit="token", source="zero-offload-adam")
def cpu_adam_hiding_tokens(*, flops_per_s: float, flops_per_param_token: float, params_per_s: float) -> float:
    """Tokens per GPU and optimizer step from which compute hides the update on the host, when it may overlap."""
    return flops_per_s / (flops_per_param_token * params_per_s)


@formula(symbol="R_adam", unit="param/s", source="zero-offload-adam")
def update_rate(*, num_params: int, seconds: float) -> float:
    """Parameters updated per second."""
    return num_params / seconds


@formula(symbol="t_adam", unit="s", source="zero-offload-adam")
def cpu_adam_s(*, num_params: int, ranks: int, params_per_s: float) -> float:
    """Seconds of the host's update of one rank's shard at a measured rate."""
    return ceil_div(num_params, ranks) / params_per_s


@formula(symbol="t_dram", unit="s", source="cpu-adam-roofline")
def cpu_adam_roofline_s(*, num_params: int, dram_bytes_per_param: int, dram_bytes_per_s: float) -> float:
    """Seconds below which no update can go: host memory has to be read and written (16 and 12 bytes for Adam)."""
    return num_params * dram_bytes_per_param / dram_bytes_per_s


@formula(symbol="t_step", unit="s", source="zero-offload")
def delayed_update_s(*, gpu_s: float, cpu_s: float) -> float:
    """Seconds per step when the host's update runs beside the next step's compute (one step of delay)."""
    return largest(gpu_s, cpu_s)


@formula(symbol="t_move", unit="s", source="zero-offload")
def transfer_s(*, num_bytes: int, bandwidth_bytes_per_s: float) -> float:
    """Seconds to move bytes over one link, one direction."""
    return num_bytes / bandwidth_bytes_per_s


@formula(symbol="Ψ", unit="param", source="zero-infinity-memory")
def infinity_params(*, num_layers: int, hidden_size: int) -> int:
    """Parameters of a plain transformer without embeddings (equation 1)."""
    return 12 * num_layers * hidden_size**2


@formula(symbol="M_states", unit="byte", source="zero-infinity-memory")
def infinity_state_bytes(*, num_layers: int, hidden_size: int) -> int:
    """Bytes of model states at 20 per parameter (equation 2)."""
    return 240 * num_layers * hidden_size**2


@formula(symbol="M_ckpt", unit="byte", source="zero-infinity-memory")
def infinity_checkpoint_bytes(
    *, batch_size: int, seq_len: int, hidden_size: int, num_layers: int, layers_per_checkpoint: int
) -> int:
    """Bytes of activation checkpoints (equation 3)."""
    return ceil_div(2 * batch_size * seq_len * hidden_size * num_layers, layers_per_checkpoint)


@formula(symbol="MSWM", unit="byte", source="zero-infinity-memory")
def infinity_state_working_bytes(*, hidden_size: int) -> int:
    """Bytes of the largest operator's gathered 16-bit parameters and gradients, hd to 4hd (equation 4)."""
    return 4 * hidden_size * 4 * hidden_size


@formula(symbol="AWM", unit="byte", source="zero-infinity-memory")
def infinity_activation_working_bytes(
    *, batch_size: int, seq_len: int, layers_per_checkpoint: int, hidden_size: int, num_heads: int
) -> int:
    """Bytes of activations between two checkpoints while they are computed again (equation 5)."""
    return batch_size * seq_len * layers_per_checkpoint * (16 * hidden_size + 2 * num_heads * seq_len)


@formula(symbol="M_max", unit="param", source="zero-infinity-memory")
def max_params(*, tier_bytes: int, bytes_per_param: int) -> int:
    """Parameters whose states fill a tier: a ceiling of capacity, not what was trained."""
    return tier_bytes // bytes_per_param


@formula(symbol="ait_pg", unit="FLOP/byte", source="zero-infinity-bandwidth")
def params_intensity(*, seq_len: int, batch_size: int) -> int:
    """FLOPs per byte of parameters and gradients moved (equation 9)."""
    return seq_len * batch_size


@formula(symbol="ait_opt", unit="FLOP/byte", source="zero-infinity-bandwidth")
def optimizer_intensity(*, seq_len: int, batch_size: int) -> float:
    """FLOPs per byte of optimizer states moved (equation 10)."""
    return seq_len * batch_size / 4


@formula(symbol="ait_act", unit="FLOP/byte", source="zero-infinity-bandwidth")
def checkpoint_intensity(*, hidden_size: int, layers_per_checkpoint: int) -> int:
    """FLOPs per byte of activation checkpoints moved (equation 11)."""
    return 24 * hidden_size * layers_per_checkpoint


@formula(symbol="η", unit="ratio", source="zero-infinity-bandwidth")
def efficiency(*, intensity: float, bandwidth_bytes_per_s: float, peak_flops_per_s: float) -> float:
    """Share of peak that is reached when nothing overlaps (equation 6), a ratio; bandwidth is per GPU."""
    return intensity * bandwidth_bytes_per_s / (intensity * bandwidth_bytes_per_s + peak_flops_per_s)


@formula(symbol="bw", unit="byte/s", source="zero-infinity-bandwidth")
def bandwidth_for_efficiency(*, target_efficiency: float, intensity: float, peak_flops_per_s: float) -> float:
    """Bandwidth per GPU that a wanted efficiency asks for: equation 6 solved for it, in bytes per second."""
    return target_efficiency / (1 - target_efficiency) * peak_flops_per_s / intensity


@formula(symbol="bw_node", unit="byte/s", source="zero-infinity-centric")
def bandwidth_centric_rate(
    *, ranks_per_node: int, pcie_share_bytes_per_s: float, tier_share_bytes_per_s: float
) -> float:
    """Bytes per second of one node when every rank reads its own part: the narrower of its PCIe and tier shares."""
    return ranks_per_node * smallest(pcie_share_bytes_per_s, tier_share_bytes_per_s)


@formula(symbol="bw_all", unit="byte/s", source="zero-infinity-centric")
def aggregate_bandwidth(*, num_nodes: int, node_bytes_per_s: float) -> float:
    """Bytes per second of all nodes together under bandwidth-centric partitioning."""
    return num_nodes * node_bytes_per_s


@formula(symbol="M_nvme", unit="byte", source="deepspeed-nvme")
def nvme_bytes(*, num_params: int, ranks: int, bytes_per_param: int) -> int:
    """Bytes of one rank's files on NVMe; tensors below 1 MiB stay in memory and padding is not counted."""
    return bytes_per_param * ceil_div(num_params, ranks)


@formula(symbol="M_pin", unit="byte", source="deepspeed-nvme")
def nvme_optimizer_buffer_bytes(
    *, num_params: int, ranks: int, sub_group_size: int, buffer_count: int, bytes_per_element: int
) -> int:
    """Bytes of pinned host memory per rank through which optimizer states are swapped."""
    return buffer_count * smallest(ceil_div(num_params, ranks), sub_group_size) * bytes_per_element


@formula(symbol="M_pin_p", unit="byte", source="deepspeed-nvme")
def nvme_param_buffer_bytes(*, buffer_count: int, buffer_size: int, bytes_per_element: int) -> int:
    """Bytes of pinned host memory per rank through which parameters are swapped."""
    return buffer_count * buffer_size * bytes_per_element
