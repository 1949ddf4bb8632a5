"""Offload against the papers' printed numbers and the worked examples."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from zerocalc.formulas import offload
from zerocalc.formulas.offload import (
    CPU_ADAM_TIMES,
    NVME_BYTES_PER_PARAM,
    OFFLOAD_PLACEMENTS,
    OFFLOAD_TRAFFIC,
)
from zerocalc.sources import SOURCES

WORKED = {
    case["id"]: case
    for case in json.loads((Path(__file__).parents[1] / "data" / "worked.json").read_text())["cases"]
}
TIB, GIB = 2**40, 2**30
FIG_2A = ["0.10T", "0.50T", "1.01T", "10.05T", "101.47T"]


def case(name: str) -> tuple[dict[str, Any], Any]:
    return WORKED[name]["inputs"], WORKED[name]["expect"]


@pytest.mark.parametrize("name", FIG_2A)
def test_zero_infinity_figure_2a(name: str) -> None:
    inputs, expect = case(f"zinf_fig2a_{name}")
    layers, hidden, heads, seq_len = inputs["nl"], inputs["hd"], inputs["attn_heads"], inputs["seq"]
    states = offload.infinity_state_bytes(num_layers=layers, hidden_size=hidden)
    checkpoints = offload.infinity_checkpoint_bytes(
        batch_size=inputs["bsz_node"], seq_len=seq_len, hidden_size=hidden, num_layers=layers,
        layers_per_checkpoint=inputs["ci"],
    )  # fmt: skip
    state_working = offload.infinity_state_working_bytes(hidden_size=hidden)
    working = offload.infinity_activation_working_bytes(
        batch_size=inputs["bsz_gpu"], seq_len=seq_len, layers_per_checkpoint=inputs["ci"], hidden_size=hidden,
        num_heads=heads,
    )  # fmt: skip
    assert offload.infinity_params(num_layers=layers, hidden_size=hidden) == expect["params"]
    assert (states, checkpoints, state_working, working) == (
        expect["model_states"], expect["act_ckpt"], expect["MSWM"], expect["AWM"],
    )  # fmt: skip
    printed = WORKED[f"zinf_fig2a_{name}"]["printed"]
    assert states / TIB == pytest.approx(printed["model_states_TiB"], abs=0.01)
    assert checkpoints / TIB == pytest.approx(printed["act_ckpt_TiB"], abs=0.01)
    assert working / GIB == pytest.approx(printed["AWM_GiB"], abs=0.01)
    if name != "0.10T":  # the paper prints 1.95 where its own formula gives 1.56
        assert state_working / GIB == pytest.approx(printed["MSWM_GiB"], abs=0.01)


@pytest.mark.parametrize(
    ("name", "printed"), list(zip(FIG_2A, [2.03, 3.91, 7.13, 24.38, 88.59], strict=True))
)
def test_zero_infinity_full_activations(name: str, printed: float) -> None:
    inputs, _ = case(f"zinf_fig2a_{name}")
    whole = offload.infinity_activation_working_bytes(
        batch_size=64, seq_len=inputs["seq"], layers_per_checkpoint=inputs["nl"], hidden_size=inputs["hd"],
        num_heads=inputs["attn_heads"],
    )  # fmt: skip
    assert whole / TIB == pytest.approx(printed, abs=0.01)


def test_intensities_and_efficiency() -> None:
    inputs, expect = case("zinf_ait_pg")
    intensity = offload.params_intensity(seq_len=inputs["seq"], batch_size=inputs["bsz"])
    assert intensity == expect["ait"]
    half = offload.bandwidth_for_efficiency(
        target_efficiency=0.5, intensity=intensity, peak_flops_per_s=inputs["peak_flops"]
    )
    assert half == expect["bw_for_50pct_Bps"]

    inputs, expect = case("zinf_ait_opt")
    intensity = offload.optimizer_intensity(seq_len=inputs["seq"], batch_size=inputs["bsz"])
    assert intensity == expect["ait"]
    needed = offload.bandwidth_for_efficiency(
        target_efficiency=inputs["eff"], intensity=intensity, peak_flops_per_s=inputs["peak_flops"]
    )
    assert needed == pytest.approx(expect["bw_Bps"], rel=1e-12)

    inputs, expect = case("zinf_ait_act")
    intensity = offload.checkpoint_intensity(hidden_size=inputs["hd"], layers_per_checkpoint=inputs["ci"])
    assert intensity == expect["ait"]
    reached = offload.efficiency(
        intensity=intensity, bandwidth_bytes_per_s=inputs["bw"], peak_flops_per_s=inputs["peak_flops"]
    )
    assert reached == pytest.approx(expect["eff"], rel=1e-12)

    inputs, expect = case("zinf_eff_pg_70")
    reached = offload.efficiency(
        intensity=inputs["ait"], bandwidth_bytes_per_s=inputs["bw"], peak_flops_per_s=inputs["peak_flops"]
    )
    assert reached == pytest.approx(expect, rel=1e-12)


@pytest.mark.parametrize("target", [0.1, 0.5, 0.9, 0.99])
def test_efficiency_and_its_bandwidth_are_inverse(target: float) -> None:
    needed = offload.bandwidth_for_efficiency(target_efficiency=target, intensity=640, peak_flops_per_s=70e12)
    reached = offload.efficiency(intensity=640, bandwidth_bytes_per_s=needed, peak_flops_per_s=70e12)
    assert reached == pytest.approx(target, rel=1e-12)


def test_capacity_and_aggregate_bandwidth() -> None:
    inputs, expect = case("zinf_max_dgx2")
    per_param = NVME_BYTES_PER_PARAM["zero-infinity"]
    assert offload.max_params(tier_bytes=inputs["nvme"], bytes_per_param=per_param) == expect["nvme_params"]
    assert offload.max_params(tier_bytes=inputs["cpu"], bytes_per_param=per_param) == expect["cpu_params"]
    # The paper's own example: 1T parameters (128 layers of 25600) fit the 28 TB of one DGX-2.
    states = offload.infinity_state_bytes(num_layers=128, hidden_size=25600)
    assert states <= inputs["nvme"]

    inputs, expect = case("zinf_agg_bw_64")
    for tier in ("cpu", "nvme"):
        together = offload.aggregate_bandwidth(
            num_nodes=inputs["nodes"], node_bytes_per_s=inputs[f"{tier}_Bps_node"]
        )
        assert together == expect[tier]
    node = offload.bandwidth_centric_rate(
        ranks_per_node=16, pcie_share_bytes_per_s=3.0e9, tier_share_bytes_per_s=25e9 / 16
    )
    assert node == pytest.approx(25e9, rel=1e-12)


@pytest.mark.parametrize("name", ["nvme_bytes_1000000000000", "nvme_bytes_70553706496"])
def test_bytes_on_nvme(name: str) -> None:
    inputs, expect = case(name)
    rows = {
        "opt_only": "deepspeed-optimizer",
        "opt_and_param": "deepspeed-optimizer-and-params",
        "paper": "zero-infinity",
    }
    for key, row in rows.items():
        made = offload.nvme_bytes(
            num_params=inputs["params"], ranks=1, bytes_per_param=NVME_BYTES_PER_PARAM[row]
        )
        assert made == expect[key]


def test_pinned_buffers_for_nvme() -> None:
    inputs, expect = case("nvme_host_buffers")
    states = offload.nvme_optimizer_buffer_bytes(
        num_params=inputs["params"], ranks=inputs["N"], sub_group_size=inputs["sub_group"],
        buffer_count=inputs["opt_buffer_count"], bytes_per_element=4,
    )  # fmt: skip
    params = offload.nvme_param_buffer_bytes(
        buffer_count=inputs["param_buffer_count"],
        buffer_size=inputs["param_buffer_size"],
        bytes_per_element=2,
    )
    assert (states, params) == (expect["per_rank_opt"], expect["per_rank_param"])
    assert 8 * (states + params) == expect["per_node_8"]


def test_zero_offload_states() -> None:
    inputs, expect = case("zoffload_states")
    kept = OFFLOAD_PLACEMENTS["zero-offload"].gpu_bytes_per_param
    moved = OFFLOAD_PLACEMENTS["baseline"].gpu_bytes_per_param - kept
    gpu = offload.offload_gpu_bytes(num_params=inputs["params"], bytes_per_param=kept)
    host = offload.offload_host_bytes(num_params=inputs["params"], bytes_per_param=moved, ranks=1)
    assert (gpu, host, gpu + host) == (expect["gpu"], expect["cpu"], expect["total"])


def test_zero_offload_models() -> None:
    inputs, expect = case("zoffload_models")
    for name, num_params in inputs.items():
        whole = OFFLOAD_PLACEMENTS["baseline"].gpu_bytes_per_param
        assert offload.offload_gpu_bytes(num_params=num_params, bytes_per_param=whole) == expect[name]


def test_placements_save_what_they_move() -> None:
    for placement in OFFLOAD_PLACEMENTS.values():
        assert (
            placement.gpu_bytes_per_param
            == 16 - 2 * placement.grads_on_host - 12 * placement.optimizer_on_host
        )


def traffic(name: str, num_params: int, ranks: int, micro_steps: int = 1) -> tuple[int, int]:
    row = OFFLOAD_TRAFFIC[name]
    down = offload.offload_traffic_bytes(
        num_params=num_params, ranks=ranks, micro_steps=micro_steps,
        bytes_per_micro_step=row.to_host_per_micro_step, bytes_per_step=row.to_host_per_step,
    )  # fmt: skip
    up = offload.offload_traffic_bytes(
        num_params=num_params, ranks=ranks, micro_steps=micro_steps,
        bytes_per_micro_step=row.from_host_per_micro_step, bytes_per_step=row.from_host_per_step,
    )  # fmt: skip
    return down, up


def test_traffic_over_pcie() -> None:
    inputs, expect = case("zoffload_pcie_10B")
    assert sum(traffic("ideal", inputs["params"], 1)) == expect["total"]
    down, up = traffic("ideal", inputs["params"], inputs["N"])
    assert down == up == expect["per_rank_each_way"]
    seconds = offload.transfer_s(num_bytes=expect["total"], bandwidth_bytes_per_s=inputs["pcie_Bps"])
    assert seconds == pytest.approx(expect["sec_1gpu"], rel=1e-12)

    inputs, expect = case("zoffload_l2l")
    assert sum(traffic("l2l", inputs["params"], 1)) == expect


def test_what_implementations_move() -> None:
    inputs, expect = case("offload_fsdp2_vs_ds")
    num_params, ranks = inputs["params"], inputs["N"]
    assert sum(traffic("ideal", num_params, ranks)) == expect["zero_offload_ideal"]
    down, up = traffic("fsdp2", num_params, ranks)
    assert (up, down) == (expect["fsdp2_h2d"], expect["fsdp2_d2h"])
    down, up = traffic("deepspeed-zero3", num_params, ranks)
    params_up, _ = traffic("ideal", num_params, ranks)
    assert down + up - params_up == expect["ds_z3_grad_boundary"]
    for row in OFFLOAD_TRAFFIC.values():
        assert row.source in SOURCES
    for name in OFFLOAD_TRAFFIC:
        assert sum(traffic(name, num_params, ranks)) >= expect["zero_offload_ideal"]


def test_tokens_that_hide_offload() -> None:
    inputs, expect = case("zoffload_hide_tokens")
    for flops, key in ((inputs["c_norecompute"], "no_recompute"), (inputs["c_recompute"], "recompute")):
        tokens = offload.offload_hiding_tokens(
            bytes_per_param=4,
            flops_per_s=inputs["E"],
            flops_per_param_token=flops,
            bandwidth_bytes_per_s=inputs["B"],
        )
        assert tokens == pytest.approx(expect[key], rel=1e-12)
    adam = offload.cpu_adam_hiding_tokens(flops_per_s=40e12, flops_per_param_token=6, params_per_s=4e9)
    assert adam == pytest.approx(40e12 / 24e9, rel=1e-12)


def test_cpu_adam() -> None:
    inputs, expect = case("cpuadam_table4")
    for column in ("cpu_adam_s", "pt_cpu_s", "pt_gpu_s"):
        field = column.replace("pt_", "pytorch_")
        assert [getattr(row, field) for row in CPU_ADAM_TIMES] == inputs[column]
    assert [row.num_params for row in CPU_ADAM_TIMES] == [count * 10**9 for count in inputs["params"]]
    rates = [offload.update_rate(num_params=row.num_params, seconds=row.cpu_adam_s) for row in CPU_ADAM_TIMES]
    assert [round(rate) for rate in rates] == expect["params_per_s"]
    assert offload.cpu_adam_s(num_params=10**10, ranks=1, params_per_s=rates[-1]) == pytest.approx(
        2.57, rel=1e-12
    )

    inputs, expect = case("cpuadam_roofline")
    least = offload.cpu_adam_roofline_s(
        num_params=inputs["params"], dram_bytes_per_param=28, dram_bytes_per_s=inputs["dram_Bps"]
    )
    assert least == pytest.approx(expect, rel=1e-12)
    assert offload.delayed_update_s(gpu_s=2.0, cpu_s=least) == least


@pytest.mark.parametrize("ratio", [0, Fraction(1, 10), Fraction(1, 2), 1])
def test_twin_flow_parts_the_optimizer_states(ratio: int | Fraction) -> None:
    sizes = {"num_params": 7_000_000_001, "ranks": 8}
    whole = offload.offload_host_bytes(**sizes, bytes_per_param=12)
    host = offload.twin_flow_host_bytes(**sizes, bytes_per_param=12, ratio=ratio)
    gpu = offload.twin_flow_gpu_bytes(**sizes, bytes_per_param=12, ratio=ratio)
    assert isinstance(host, int)
    assert 0 <= host + gpu - whole <= 1
    assert offload.twin_flow_host_bytes(**sizes, bytes_per_param=16, ratio=1) == offload.offload_host_bytes(
        **sizes, bytes_per_param=16
    )
