"""Times against the worked examples, nccl-tests' factors and published bandwidths."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from zerocalc.formulas import timing
from zerocalc.formulas.timing import BUS_FACTORS, CROSSOVERS

WORKED = {
    case["id"]: case
    for case in json.loads((Path(__file__).parents[1] / "data" / "worked.json").read_text())["cases"]
}


def case(name: str) -> tuple[dict[str, Any], Any]:
    return WORKED[name]["inputs"], WORKED[name]["expect"]


def test_rings_and_trees() -> None:
    inputs, expect = case("alphabeta_ring_ar")
    sizes = {
        "full_bytes": inputs["S"], "ranks": inputs["N"], "latency_s": inputs["alpha"],
        "bandwidth_bytes_per_s": inputs["B"],
    }  # fmt: skip
    assert timing.ring_all_reduce_s(**sizes) == pytest.approx(expect, rel=1e-12)
    assert timing.ring_all_reduce_s(**sizes) == pytest.approx(2 * timing.ring_leg_s(**sizes), rel=1e-12)
    halving = timing.halving_doubling_all_reduce_s(**sizes, levels=timing.tree_levels(inputs["N"]))
    assert halving == pytest.approx(expect - (2 * 7 - 2 * 3) * inputs["alpha"], rel=1e-12)

    inputs, expect = case("alphabeta_ring_ag")
    gather = timing.ring_leg_s(
        full_bytes=inputs["S"],
        ranks=inputs["N"],
        latency_s=inputs["alpha"],
        bandwidth_bytes_per_s=inputs["B"],
    )
    assert gather == pytest.approx(expect, rel=1e-12)

    inputs, expect = case("alphabeta_tree_ar")
    tree = timing.tree_all_reduce_s(
        full_bytes=inputs["S"], levels=timing.tree_levels(inputs["N"]), latency_s=inputs["alpha"],
        bandwidth_bytes_per_s=inputs["B"],
    )  # fmt: skip
    assert tree == pytest.approx(expect, rel=1e-12)


@pytest.mark.parametrize(("ranks", "levels"), [(1, 0), (2, 1), (3, 2), (8, 3), (9, 4), (64, 6), (1000, 10)])
def test_tree_levels(ranks: int, levels: int) -> None:
    assert timing.tree_levels(ranks) == levels


def test_hierarchical_all_reduce() -> None:
    inputs, expect = case("alphabeta_hier_ar")
    seconds = timing.hierarchical_all_reduce_s(
        full_bytes=inputs["S"], ranks_per_node=inputs["L"], num_nodes=inputs["M"],
        node_bandwidth_bytes_per_s=inputs["Bi"], nic_bandwidth_bytes_per_s=inputs["Bo"],
    )  # fmt: skip
    assert seconds == pytest.approx(expect, rel=1e-12)
    alone = timing.hierarchical_all_reduce_s(
        full_bytes=inputs["S"], ranks_per_node=inputs["L"], num_nodes=1,
        node_bandwidth_bytes_per_s=inputs["Bi"], nic_bandwidth_bytes_per_s=inputs["Bo"],
    )  # fmt: skip
    ring = timing.ring_all_reduce_s(
        full_bytes=inputs["S"], ranks=inputs["L"], latency_s=0, bandwidth_bytes_per_s=inputs["Bi"]
    )
    assert alone == pytest.approx(ring, rel=1e-12)


def test_a_flat_ring_is_as_fast_as_the_node_reaches_out() -> None:
    sizes = {"full_bytes": 10**9, "ranks": 64, "node_bandwidth_bytes_per_s": 360e9}
    one_nic = timing.flat_ring_leg_s(**sizes, nics_per_node=1, nic_bandwidth_bytes_per_s=12.5e9)
    assert one_nic == pytest.approx(63 / 64 / 12.5, rel=1e-12)
    rails = timing.flat_ring_leg_s(**sizes, nics_per_node=8, nic_bandwidth_bytes_per_s=50e9)
    assert rails == pytest.approx(63 / 64 / 360, rel=1e-12)


def test_bus_factors() -> None:
    inputs, expect = case("busbw_factors")
    names = {"alltoall": "all_to_all"}
    for op, factor in expect.items():
        assert BUS_FACTORS[names.get(op, op)](ranks=inputs["n"]) == factor
    assert BUS_FACTORS["send_recv"](ranks=8) == 1
    assert BUS_FACTORS["all_reduce_in_network"](ranks=8) == pytest.approx(7 / 9, rel=1e-12)


def test_published_bandwidths() -> None:
    # DeepSpeed's comms log: an all-gather over 16 ranks at 954.41 Gb/s of algorithm bandwidth, 894.76 of bus.
    assert 954.41 * BUS_FACTORS["all_gather"](ranks=16) == pytest.approx(894.76, abs=0.005)
    # The time that gives a bus bandwidth gives it back (H200, ring, 16 GiB).
    factor = BUS_FACTORS["all_reduce"](ranks=8)
    seconds = timing.collective_s(full_bytes=2**34, bus_factor=factor, bandwidth_bytes_per_s=367.61e9)
    assert factor * 2**34 / seconds == pytest.approx(367.61e9, rel=1e-12)


def crossover(name: str, *, grad_bytes: int, ranks: int, flops_per_s: float, bandwidth: float) -> float:
    row = CROSSOVERS[name]
    moved = timing.moved_bytes_per_param(
        grad_legs=row.grad_legs, grad_bytes=grad_bytes, param_legs=row.param_legs, param_bytes=2
    )
    return timing.hiding_tokens(
        bytes_per_param=moved, flops_per_param_token=row.flops_per_param_token, num_params=1, active_params=1,
        ranks=ranks, flops_per_s=flops_per_s, bandwidth_bytes_per_s=bandwidth,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "row", "grad_bytes"),
    [
        ("crossover_z3_bf16", "zero3", 2),
        ("crossover_z3_recompute", "zero3-recompute", 2),
        ("crossover_z3_fp32reduce", "zero3", 4),
        ("crossover_z3_recompute_fp32reduce", "zero3-recompute", 4),
    ],
)
def test_crossovers(name: str, row: str, grad_bytes: int) -> None:
    inputs, expect = case(name)
    tokens = crossover(
        row, grad_bytes=grad_bytes, ranks=inputs["N"], flops_per_s=inputs["E"], bandwidth=inputs["B"]
    )
    assert tokens == pytest.approx(expect, rel=1e-12)


def test_bf16_crossover_is_the_same_in_every_phase() -> None:
    link = {"ranks": 64, "flops_per_s": 400e12, "bandwidth": 360e9}
    bf16 = {name: crossover(name, grad_bytes=2, **link) for name in CROSSOVERS}
    for name in ("zero3-forward", "zero3-backward", "ddp-backward"):
        assert bf16[name] == pytest.approx(bf16["zero3"], rel=1e-12)
    assert bf16["zero3-backward-recompute"] == pytest.approx(2 / 3 * bf16["zero3"], rel=1e-12)
    wide = crossover("zero3-backward", grad_bytes=4, **link)
    assert wide == pytest.approx(1.5 * bf16["zero3-backward"], rel=1e-12)
    slow = crossover("zero3", grad_bytes=2, ranks=64, flops_per_s=400e12, bandwidth=12.5e9)
    assert slow == pytest.approx(31_500, rel=1e-12)


def test_experts_raise_and_replicas_lower_the_crossover() -> None:
    sizes = {
        "bytes_per_param": 6, "flops_per_param_token": 6, "ranks": 64, "flops_per_s": 400e12,
        "bandwidth_bytes_per_s": 360e9,
    }  # fmt: skip
    dense = timing.hiding_tokens(**sizes, num_params=47, active_params=47)
    sparse = timing.hiding_tokens(**sizes, num_params=47, active_params=13)
    assert sparse == pytest.approx(dense * 47 / 13, rel=1e-12)
    outer = timing.replica_hiding_tokens(
        grad_bytes=4, flops_per_param_token=6, shard_size=8, replicas=4, flops_per_s=400e12,
        bandwidth_bytes_per_s=50e9,
    )  # fmt: skip
    assert outer == pytest.approx(2 * 4 / 8 * 0.75 / 6 * 8000, rel=1e-12)


def test_flops() -> None:
    inputs, expect = case("flops_L8B_8192")
    matmul_params = inputs["params"] - inputs["V"] * inputs["h"]
    sizes = {
        "num_layers": inputs["L"],
        "num_heads": 32,
        "head_dim": 128,
        "seq_len": inputs["s"],
        "tokens": inputs["T"],
    }
    linear = timing.linear_flops(matmul_params=matmul_params, tokens=inputs["T"], recomputed_forwards=0)
    attention = timing.attention_flops(**sizes, recomputed_forwards=0)
    assert (linear, attention, linear + attention) == (expect["linear"], expect["attn"], expect["total"])
    again = timing.linear_flops(matmul_params=matmul_params, tokens=inputs["T"], recomputed_forwards=1)
    again += timing.attention_flops(**sizes, recomputed_forwards=1)
    assert again - expect["total"] == expect["recompute_extra"]
    assert 2 * timing.causal_attention_flops(**sizes, recomputed_forwards=1) == timing.attention_flops(
        **sizes, recomputed_forwards=1
    )
    titan = timing.torchtitan_flops(
        matmul_params=matmul_params, num_layers=32, num_heads=32, query_key_dim=128, value_dim=128,
        seq_len=inputs["s"], tokens=inputs["T"],
    )  # fmt: skip
    assert titan == expect["total"]


def test_the_bounds_of_a_step() -> None:
    at_peak = timing.compute_s(flops=10**15, flops_per_s=1e15, utilization=1)
    realistic = timing.compute_s(flops=10**15, flops_per_s=1e15, utilization=0.4)
    for communication_s in (0.0, 0.5, 2.0, 10.0):
        low = timing.lower_bound_s(peak_compute_s=at_peak, communication_s=communication_s)
        high = timing.upper_bound_s(compute_s=realistic, communication_s=communication_s)
        assert low == max(at_peak, communication_s)
        assert high == realistic + communication_s
        assert low <= high
    assert timing.exposed_floor_s(first_gather_s=0.25, last_reduce_s=0.5, micro_steps=4) == 3.0
    trailing = timing.trailing_gather_s(num_params=10**9, param_bytes=2, ranks=8, bandwidth_bytes_per_s=1e9)
    assert trailing == pytest.approx(1.75, rel=1e-12)


def test_from_a_step_to_a_bill() -> None:
    rate = timing.tokens_per_s(tokens_per_step=4_194_304, step_s=2.0)
    seconds = timing.training_s(total_tokens=2_097_152 * 7200, tokens_per_s=rate)
    assert seconds == 7200
    assert timing.gpu_hours(num_gpus=64, seconds=seconds, seconds_per_hour=3600) == 128
