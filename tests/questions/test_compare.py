"""The default question: the issue's own numbers, the dividing line, and what a strategy cannot do."""

from __future__ import annotations

import pytest

import zerocalc
from zerocalc.errors import UsageError


def by_strategy(answer):
    return {result.strategy: result for result in answer.results}


def test_seventy_billion_on_64_gpus_of_80_gb():
    answer = by_strategy(zerocalc.compare(zerocalc.job("70b", dp=64, gpu="80GB")))
    totals = [round(result.memory.gpu.model_states_bytes / 1e9, 1) for result in answer.values()]
    assert totals == [1120, 293.1, 155.3, 17.5]
    assert [result.fits for result in answer.values()] == [False, False, False, True]
    assert [result.memory.gpu.floor_bytes // 10**9 for result in answer.values()] == [1120, 280, 140, 0]


def test_llama_2_70b_by_its_real_count():
    job = zerocalc.job("llama-2-70b", gpus=64, gpu="a100-80gb")
    assert job.model.num_params == 68_976_648_192
    answer = zerocalc.compare(job)
    totals = [round(result.memory.gpu.model_states_bytes / 1e9, 1) for result in answer.results]
    assert totals == [1103.6, 288.8, 153.0, 17.2]
    assert [result.fits for result in answer.results] == [False, False, False, True]


def test_the_dividing_line_when_whole_parameters_do_not_fit():
    line = zerocalc.compare(zerocalc.job("70b", dp=64, gpu="80GB")).dividing_line
    assert (line.whole_params_fit, line.whole_params_bytes, line.zero2_min_data_parallel_size) == (
        False,
        140 * 10**9,
        None,
    )


def test_the_dividing_line_names_the_first_degree_that_fits():
    # 2Ψ + 14Ψ/N <= 40 GB with Ψ = 7.5e9: 15 + 105/N <= 40, N >= 4.2.
    line = zerocalc.compare(zerocalc.job("7.5b", dp=64, gpu="40GB")).dividing_line
    assert (line.whole_params_fit, line.zero2_min_data_parallel_size) == (True, 5)


def test_model_parallel_ranks_share_the_whole_parameters():
    line = zerocalc.compare(zerocalc.job("70b", gpus=64, tp=4, pp=2, gpu="80GB")).dividing_line
    assert (line.whole_params_bytes, line.whole_params_fit) == (140 * 10**9 // 8, True)


def test_offload_keeps_rows_with_their_reason():
    answer = by_strategy(zerocalc.compare(zerocalc.job("70b", dp=64, gpu="80GB", offload_params="cpu")))
    assert [name for name, result in answer.items() if result.applicable] == ["zero3"]
    assert "whole parameters" in answer["zero2"].reason


def test_nothing_applicable_is_an_error():
    job = zerocalc.job("70b", dp=64, gpu="80GB", offload_params="cpu")
    with pytest.raises(UsageError, match="no strategy can do this"):
        zerocalc.compare(job, strategies=["ddp", "zero2"])


@pytest.mark.parametrize(
    ("typed", "stands_for"),
    [("fsdp", "zero3"), ("FULL_SHARD", "zero3"), ("shard_grad_op", "zero2"), ("no_shard", "ddp")],
)
def test_fsdp_names_say_what_they_stand_for(typed, stands_for):
    job = zerocalc.job("7b", dp=8, strategy=typed)
    assert job.strategy == stands_for
    assert any(f"{typed} read as {stands_for}" in sentence for sentence in job.assumptions)
