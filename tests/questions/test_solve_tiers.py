"""An answer fits every memory whose size is known, the host's and NVMe's too, and its neighbour does not."""

from __future__ import annotations

import pytest

import zerocalc
from zerocalc.evaluate import evaluate, overfull
from zerocalc.questions.solve import with_degree

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
