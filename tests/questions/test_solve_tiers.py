"""An answer fits every memory whose size is known, the host's and NVMe's too, and its neighbour does not."""

from __future__ import annotations

import pytest

import zerocalc
from zerocalc.evaluate import evaluate, overfull, plans
from zerocalc.questions.solve import with_degree
from zerocalc.sweeps.figures import figures
from zerocalc.totals import tier_peak

DGX2 = {"gpus_per_node": 16, "gpu": "32GB", "precision": "zero-infinity"}


@pytest.mark.parametrize(
    ("tier", "room", "largest"),
    [("nvme", {"nvme_memory": "28TB"}, 1_400_000_000_000), ("cpu", {"host_memory": "1.5TB"}, 75_000_000_000)],
)
def test_the_largest_model_fills_its_tier(tier, room, largest):
    """ZeRO-Infinity's 20 bytes per parameter on one DGX-2."""
    words = DGX2 | room | {"gpus": 16, "strategy": "zero3", "offload_optimizer": tier, "offload_params": tier}
    (answer,) = zerocalc.solve(zerocalc.job(1, **words), "params", strategies=["zero3"]).answers
    assert answer.value == largest
    assert answer.binding == f"optimizer_states on {tier}"
    assert overfull(zerocalc.job(largest, **words)) is None
    assert overfull(zerocalc.job(largest + 1, **words)) == tier


def test_the_fewest_gpus_share_what_one_host_cannot_hold():
    job = zerocalc.job(
        "70b",
        gpus=8,
        gpus_per_node=8,
        gpu="32GB",
        host_memory="500GB",
        strategy="zero3",
        offload_optimizer="cpu",
    )
    (answer,) = zerocalc.solve(job, "gpus", strategies=["zero3"]).answers
    # 14 bytes of 16 rest on hosts: 980 GB, so two nodes of 500 GB, though the GPUs would do with fewer.
    assert answer.value == 16
    assert overfull(with_degree(job, 15)) == "cpu"
    fewer, _ = evaluate(with_degree(job, 15))
    assert fewer.fits


def test_a_host_that_is_too_small_is_the_reason():
    job = zerocalc.job(
        "7b", gpus=8, gpus_per_node=8, gpu="80GB", host_memory="50GB", strategy="zero2", offload_optimizer="cpu",
        micro_batch=1, seq_len=1,
    )  # fmt: skip
    answer = zerocalc.solve(job, "strategy", strategies=["zero2"]).answers[0]
    assert answer.value is None
    llama = zerocalc.job(
        "llama-2-7b", gpus=8, gpus_per_node=8, gpu="80GB", host_memory="50GB", strategy="zero2",
        offload_optimizer="cpu", seq_len=1024,
    )  # fmt: skip
    answer = zerocalc.solve(llama, "micro-batch", strategies=["zero2"]).answers[0]
    assert answer.value is None
    assert "host memory on one node" in answer.reason


def test_a_model_that_nothing_limits_is_said():
    job = zerocalc.job(
        1, gpus=16, gpu="32GB", offload_optimizer="nvme", offload_params="nvme", strategy="zero3"
    )
    answer = zerocalc.solve(job, "params", strategies=["zero3"])
    assert any("limits the model" in warning for warning in answer.warnings)


def _pipelined(**words):
    return zerocalc.job(
        "llama-3-70b", gpus=64, tp=4, pp=4, gpus_per_node=8, gpu="h100", strategy="zero1", offload_optimizer="cpu",
        micro_batch=4, seq_len=4096, grad_accum=16, checkpointing="full", **words,
    )  # fmt: skip


def test_a_node_is_that_of_the_stage_that_holds_most_on_the_host():
    answer = zerocalc.estimate(_pipelined())
    (result,) = answer.results
    most = max(tier_peak(plan, "cpu") for _, plan in plans(_pipelined()))
    assert result.rank_class == "stage 0"  # Its activations are the largest, its states are not.
    assert result.memory.cpu.bytes_per_rank < most
    assert result.memory.cpu.bytes_per_node == 8 * most
    assert any("a node with stage 3 only" in text for text in answer.assumptions)
    short = _pipelined(host_memory=f"{8 * most - 1}B")
    assert overfull(short) == "cpu"
    assert zerocalc.estimate(short).results[0].memory.cpu.fits is False
    assert figures(short)["host_bytes_per_node"] == 8 * most


def test_activations_beside_frozen_parameters_are_said_to_be_those_of_full_training():
    words = {"gpus": 8, "micro_batch": 1, "seq_len": 512}
    lora = zerocalc.estimate(zerocalc.job("llama-3-8b", lora_rank=16, **words)).assumptions
    half = zerocalc.estimate(zerocalc.job("llama-3-8b", trainable="50%", **words)).assumptions
    full = zerocalc.estimate(zerocalc.job("llama-3-8b", **words)).assumptions
    said = [any("training every parameter" in text for text in texts) for texts in (lora, half, full)]
    assert said == [True, True, False]
