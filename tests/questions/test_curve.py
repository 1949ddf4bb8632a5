"""A curve's points are single estimates, and its end is what the peak falls to."""

import pytest

import zerocalc
from tests.render.pictured import PICTURED, pictured
from zerocalc.questions.curve import curves, degrees


def test_every_point_is_the_estimate_at_that_degree():
    result = pictured("compare-timed")
    words = {"node": "dgx-h100", "micro_batch": 1, "seq_len": 8192, "checkpointing": "full"}
    for curve in result.curves:
        for point in curve.points[::3]:
            job = zerocalc.job("llama-3-8b", gpus=point.world_size, strategy=curve.strategy, **words)
            row = zerocalc.estimate(job).results[0]
            assert point.peak_bytes == row.memory.gpu.peak_bytes
            assert point.model_states_bytes == row.memory.gpu.model_states_bytes
            assert point.fits == row.fits


@pytest.mark.parametrize("key", PICTURED)
def test_the_asked_degree_is_on_the_curve_with_the_answers_own_peak(key):
    result = pictured(key)
    asked = result.request["data_parallel_size"].value
    for curve in result.curves:
        row = next(
            r for r in result.results if (r.strategy, r.framework) == (curve.strategy, curve.framework)
        )
        point = next(point for point in curve.points if point.data_parallel_size == asked)
        assert (point.peak_bytes, point.fits) == (row.memory.gpu.peak_bytes, row.fits)


@pytest.mark.parametrize("key", PICTURED)
def test_what_stays_is_below_every_point(key):
    for curve in pictured(key).curves:
        assert all(curve.constant_bytes <= point.peak_bytes for point in curve.points)


def test_degrees_divide_the_ranks():
    assert degrees(zerocalc.job("7b", dp=6)) == [1, 2, 4, 6, 8, 16, 32, 64, 128, 256, 512, 1024]
    experts = zerocalc.job("mixtral-8x7b", gpus=64, ep=8)
    assert degrees(experts) == [8, 16, 32, 64, 128, 256, 512, 1024]
    assert degrees(zerocalc.job("7b", dp=1024))[-1] == 8192


def test_a_strategy_that_does_not_apply_has_no_curve():
    job = zerocalc.job("13b", dp=16, offload_optimizer="cpu")
    result = zerocalc.compare(job)
    assert [curve.strategy for curve in curves(job, result.results)] == ["zero1", "zero2", "zero3"]
