"""Every answer fits and its neighbour does not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zerocalc
from zerocalc.errors import UsageError
from zerocalc.evaluate import evaluate, peak_bytes
from zerocalc.questions.solve import largest_true, smallest_true, with_degree
from zerocalc.strategies import COMPARED


@given(edge=st.integers(1, 1000), high=st.integers(1, 1000))
def test_bisection_finds_the_edge(edge, high):
    assert largest_true(lambda n: n <= edge, low=1, high=high) == min(edge, high)
    assert smallest_true(lambda n: n >= edge, low=1, high=high) == (edge if edge <= high else None)


def test_largest_params_of_the_ideal():
    answers = {
        a.strategy: a.value for a in zerocalc.solve(zerocalc.job("1b", dp=64, gpu="80GB"), "params").answers
    }
    assert answers["ddp"] == 5 * 10**9  # 80e9 / 16
    assert answers["zero3"] == 64 * 5 * 10**9


@settings(max_examples=30, deadline=None)
@given(
    dp=st.integers(1, 2048),
    capacity=st.integers(10**9, 10**12),
    strategy=st.sampled_from(COMPARED),
    precision=st.sampled_from(["mixed-bf16", "fp32", "bf16-fp32-grads"]),
)
def test_the_largest_model_fits_and_one_parameter_more_does_not(dp, capacity, strategy, precision):
    words = {"dp": dp, "gpu": f"{capacity / 10**9:.9f}GB", "precision": precision, "strategy": strategy}
    (answer,) = zerocalc.solve(zerocalc.job("1b", **words), "params", strategies=[strategy]).answers
    room = zerocalc.job(answer.value, **words).machine.capacity_bytes
    assert peak_bytes(zerocalc.job(answer.value, **words)) <= room
    assert peak_bytes(zerocalc.job(answer.value + 1, **words)) > room


@settings(max_examples=30, deadline=None)
@given(
    params=st.integers(10**6, 10**12),
    capacity=st.integers(10**9, 10**12),
    strategy=st.sampled_from(COMPARED),
    tp=st.sampled_from([1, 2, 8]),
)
def test_the_fewest_gpus_fit_and_one_degree_less_does_not(params, capacity, strategy, tp):
    job = zerocalc.job(params, dp=1, tp=tp, gpu=f"{capacity / 10**9:.9f}GB", strategy=strategy)
    (answer,) = zerocalc.solve(job, "gpus", strategies=[strategy]).answers
    room = job.machine.capacity_bytes
    if answer.value is None:
        assert peak_bytes(with_degree(job, 10**7 // tp)) > room
        return
    assert answer.value == answer.data_parallel_size * tp
    assert peak_bytes(with_degree(job, answer.data_parallel_size)) <= room
    if answer.data_parallel_size > 1:
        assert peak_bytes(with_degree(job, answer.data_parallel_size - 1)) > room


def test_no_number_of_gpus_helps_what_is_not_sharded():
    answers = {a.strategy: a for a in zerocalc.solve(zerocalc.job("70b", dp=1, gpu="80GB"), "gpus").answers}
    assert answers["zero2"].value is None
    assert "no number of GPUs helps" in answers["zero2"].reason
    assert answers["zero3"].value == 14  # 1120 / 80


def test_the_strategy_that_fits_with_least_on_the_wire():
    (answer,) = zerocalc.solve(zerocalc.job("7b", dp=64, gpu="80GB"), "strategy").answers
    assert answer.value == "zero1"  # 112 GB whole; 29.3 GB with sharded optimizer states, at 2Ψ
    result, _ = evaluate(zerocalc.job("7b", dp=64, gpu="80GB", strategy="zero1"))
    assert answer.peak_bytes == result.memory.gpu.peak_bytes


def test_solving_needs_a_gpu_and_a_known_quantity():
    with pytest.raises(UsageError, match="needs the GPU"):
        zerocalc.solve(zerocalc.job("7b", dp=8), "params")
    with pytest.raises(UsageError, match="cannot solve"):
        zerocalc.solve(zerocalc.job("7b", dp=8, gpu="80GB"), "happiness")


def test_what_no_gpu_shares_is_not_tried_with_every_number_of_them(monkeypatch):
    from zerocalc import evaluate

    tried, plans = [], evaluate.plans
    monkeypatch.setattr(evaluate, "plans", lambda job: tried.append(job) or plans(job))
    job = zerocalc.job("gemma-3-27b", gpus=64, gpu="24GB", framework="pytorch", strategy="ddp")
    (answer,) = zerocalc.solve(job, "gpus", strategies=["ddp"]).answers
    assert answer.value is None
    assert len(tried) < 12
