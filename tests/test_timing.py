"""Seconds as bounds: the papers' rules of thumb come out of the general model, and bounds are bounds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zerocalc

WORKED = {
    case["id"]: case for case in json.loads((Path(__file__).parent / "data/worked.json").read_text())["cases"]
}


def timed(model="10b", **words):
    words = {"dp": 64, "strategy": "zero3", "micro_batch": 1, "seq_len": 1024, "gpu": "80GB"} | words
    return zerocalc.estimate(zerocalc.job(model, **words)).results[0].time


def link(time, name):
    return next(row for row in time.links if row.link == name)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("crossover_z3_bf16", {}),
        ("crossover_z3_recompute", {"checkpointing": "full"}),
        ("crossover_z3_fp32reduce", {"reduce_dtype": "fp32"}),
        ("crossover_z3_recompute_fp32reduce", {"checkpointing": "full", "reduce_dtype": "fp32"}),
    ],
)
def test_tokens_that_hide_zero3(case, words):
    # E = 400 TFLOP/s achieved, B = 360 GB/s bus bandwidth over 64 ranks.
    time = timed("64b", peak_flops="800T", mfu="0.5", busbw="360GB/s", **words)
    assert link(time, "intra_node").tokens_to_hide == pytest.approx(WORKED[case]["expect"], rel=1e-6)


def test_tokens_that_hide_zero_offload():
    # 4 bytes per parameter over 12 GB/s behind 40 TFLOP/s: about 2K tokens per GPU and step, one direction at a time.
    row = WORKED["zoffload_hide_tokens"]
    words = {"dp": 1, "strategy": "zero2", "offload_optimizer": "cpu", "peak_flops": "40T", "mfu": "1"}
    time = timed(host_bandwidth="12GB/s", **words)
    assert link(time, "host").tokens_to_hide == pytest.approx(row["expect"]["no_recompute"], rel=1e-9)
    time = timed(host_bandwidth="12GB/s", checkpointing="full", **words)
    assert link(time, "host").tokens_to_hide == pytest.approx(row["expect"]["recompute"], rel=1e-9)


def test_seconds_over_pcie():
    row = WORKED["zoffload_pcie_10B"]
    words = {"dp": 1, "strategy": "zero2", "offload_optimizer": "cpu", "peak_flops": "40T"}
    time = timed(host_bandwidth="12GB/s", **words)
    assert link(time, "host").seconds.upper == pytest.approx(row["expect"]["sec_1gpu"])


@pytest.mark.parametrize(("gpus", "rate"), [(1, 13.1e9), (4, 12e9), (16, 3.0e9)])
def test_the_gpus_of_a_dgx_2_share_their_pcie(gpus, rate):
    # ZeRO-Infinity, figure 2b: 3.0 GB/s each when 16 move data; one alone has its own link's rate.
    words = {"dp": gpus, "strategy": "zero2", "offload_optimizer": "cpu", "gpu": None, "node": "dgx-2"}
    assert link(timed("1b", **words), "host").bandwidth_bytes_per_s.lower == pytest.approx(rate)


def test_drives_read_and_write_at_their_own_rates():
    words = {"dp": 8, "strategy": "zero3", "offload_optimizer": "nvme", "gpu": None}
    drives = link(timed("8b", **words, node="azure-nd96isr-h100-v5"), "nvme")
    assert drives.bandwidth_bytes_per_s.lower == pytest.approx(33.9e9 / 8)
    assert drives.bandwidth_bytes_per_s.upper == pytest.approx(55.3e9 / 8)
    given_rate = link(timed("8b", **words, node="azure-nd96isr-h100-v5", nvme_bandwidth="16GB/s"), "nvme")
    assert given_rate.bandwidth_bytes_per_s.lower == given_rate.bandwidth_bytes_per_s.upper == 2e9


def test_the_hosts_memory_bounds_the_update():
    # Worked row: Adam reads 16 and writes 12 bytes a parameter; 1.41 billion parameters/s is what one host was measured at.
    words = {
        "dp": 1,
        "strategy": "zero2",
        "offload_optimizer": "cpu",
        "gpu": "h100",
        "host_bandwidth": "1TB/s",
    }
    least, usual = 10e9 * 28 / 200e9, 10e9 / 1.41e9
    guessed = timed("10b", **words, dram_bandwidth="200GB/s")
    assert guessed.step_s.lower == pytest.approx(least)
    assert guessed.cpu_optimizer_s == pytest.approx(usual)
    assert timed("10b", **words).step_s.lower == pytest.approx(usual)
    measured = timed("10b", **words, dram_bandwidth="200GB/s", cpu_adam="2e9")
    assert measured.step_s.lower == measured.cpu_optimizer_s == pytest.approx(10e9 / 2e9)
    slow = timed("10b", **words, dram_bandwidth="20GB/s")
    assert slow.cpu_optimizer_s == slow.step_s.lower == pytest.approx(10 * least)


def test_infinity_efficiency():
    row = WORKED["zinf_eff_pg_70"]
    time = timed(
        dp=1,
        offload_params="cpu",
        offload_optimizer="cpu",
        host_bandwidth="70GB/s",
        peak_flops="70T",
        seq_len=1024,
    )
    assert time.efficiency["params_and_grads"] == pytest.approx(row["expect"], rel=1e-12)


def test_flops_of_llama_3_8b():
    row = WORKED["flops_L8B_8192"]
    i, expect = row["inputs"], row["expect"]
    time = timed("llama-3-8b", dp=8, micro_batch=1, seq_len=i["s"], peak_flops="989T", busbw="360GB/s")
    # The case counts every parameter but the input embedding; norms multiply nothing: 65 of 4096.
    norms = 65 * 4096
    assert time.compute.flops == expect["total"] - 6 * norms * i["T"]
    assert 2 * (time.compute.flops - time.compute.causal_flops) == expect["attn"]


def test_across_nodes_the_node_owns_the_rate():
    # Flat ring over 8 nodes of 8: 2 B/param, three passes, 63/64, at 400 GB/s per node.
    time = timed("8b", gpus=64, gpu="h100", node="dgx-h100", network="400GB/s")
    expect = 3 * 2 * 8e9 * 63 / 64 / 400e9
    assert link(time, "inter_node").seconds.lower == pytest.approx(expect, rel=1e-6)


def test_two_slow_nodes_go_through_their_links_once():
    # Flat ring: 15/16 of 6 B/param at the node's 12.5 GB/s; in two hops only half of it crosses, the rest is NVLink's.
    time = timed("8b", dp=None, gpus=16, gpu="h100", node="dgx-h100", network="12.5GB/s")
    full = 3 * 2 * 8e9
    assert link(time, "inter_node").seconds.lower == pytest.approx(
        full * (7 / 8 / 450e9 + 1 / 2 / 12.5e9), rel=1e-6
    )
    assert link(time, "inter_node").seconds.upper > full * 15 / 16 / 12.5e9


@settings(max_examples=60, deadline=None)
@given(
    model=st.sampled_from(["7b", "llama-3-8b", "mixtral-8x7b", "gpt2-xl"]),
    strategy=st.sampled_from(["ddp", "zero1", "zero2", "zero3", "hsdp", "zeropp"]),
    gpus=st.sampled_from([1, 8, 64, 512]),
    micro=st.integers(1, 8),
    accum=st.integers(1, 8),
    checkpointing=st.sampled_from(["none", "selective", "full"]),
)
def test_lower_never_exceeds_upper(model, strategy, gpus, micro, accum, checkpointing):
    time = timed(
        model, dp=None, gpus=gpus, strategy=strategy, gpu="h100", node="dgx-h100", micro_batch=micro, seq_len=2048,
        grad_accum=accum, checkpointing=checkpointing, shard_size=min(8, gpus), tokens="1T",
    )  # fmt: skip
    pairs = [
        time.step_s,
        time.compute.seconds,
        time.tokens_per_s,
        time.training.seconds,
        time.training.gpu_hours,
    ]
    for bounds in [*pairs, *(row.seconds for row in time.links)]:
        assert 0 < bounds.lower <= bounds.upper
    assert time.step_s.lower >= time.compute.seconds.lower
    assert time.tokens_per_step == gpus * micro * accum * 2048


def test_nothing_is_timed_without_a_batch_or_rates():
    assert zerocalc.estimate(zerocalc.job("7b", dp=8, strategy="zero3", gpu="h100")).results[0].time is None
    assert timed("7b") is None


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"mfu": "0"}, "above 0"),
        ({"mfu": "1.5"}, "at most 1"),
        ({"busbw": "360"}, "not a bandwidth"),
        ({"busbw": "360GB"}, "not a bandwidth"),
        ({"network": "0GB/s"}, "above 0"),
        ({"tokens": "lots"}, "not a count"),
    ],
)
def test_bad_rates_are_refused_by_name(words, says):
    with pytest.raises(zerocalc.ZerocalcError, match=says):
        timed(**words)


def test_bits_and_bytes_are_told_apart():
    from zerocalc.units import parse_rate

    assert parse_rate("400Gb/s") == 50e9
    assert parse_rate("400GB/s") == 400e9
    assert parse_rate("1GiB/s") == 2**30
