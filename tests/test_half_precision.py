"""A GPU that has no bf16 trains in fp16 unless told otherwise."""

from __future__ import annotations

import pytest

import zerocalc


@pytest.mark.parametrize(
    ("gpu", "dtype"), [("v100-32gb", "fp16"), ("h100", "bf16"), ("80GB", "bf16"), (None, "bf16")]
)
def test_the_usual_type_is_one_that_the_gpu_has(gpu, dtype):
    job = zerocalc.job("7b", dp=8, gpu=gpu)
    assert (job.precision.param_dtype, job.precision.reduce_dtype) == (dtype, dtype)
    assert {r.memory.gpu.model_states_bytes for r in zerocalc.compare(job).results[:1]} == {112 * 10**9}


def test_the_origin_says_why():
    answer = zerocalc.estimate(zerocalc.job("7b", dp=8, node="dgx-2"))
    assert answer.request["precision"].origin == "default: v100-sxm2-32 has no bf16"
    assert answer.warnings == []


def test_bf16_that_was_asked_for_is_kept_and_said():
    answer = zerocalc.estimate(zerocalc.job("7b", dp=8, gpu="v100-32gb", precision="mixed-bf16"))
    assert answer.request["param_dtype"].value == "bf16"
    assert any("has no bf16" in warning for warning in answer.warnings)
