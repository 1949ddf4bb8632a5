"""Explanations recompute, name their origin and their source; two frameworks' answers are told apart line by line."""

from __future__ import annotations

import pytest

import zerocalc
from zerocalc.errors import UnknownNameError, UsageError
from zerocalc.questions.explain import QUANTITIES
from zerocalc.strategies import COMPARED


def test_a_line_shows_formula_numbers_origin_and_section():
    answer = zerocalc.explain(zerocalc.job("7b", dp=8), "optimizer_states", strategies=["zero2"])
    (line,) = answer.lines
    assert line.formula == "ceil(bytes_per_param * ceil_div(num_params, shards))"
    assert line.substituted == "ceil(12 * ceil_div(7,000,000,000, 8))"
    assert line.value == 10_500_000_000
    assert {item.name: item.origin for item in line.inputs} == {
        "num_params": "num_params from argument",
        "bytes_per_param": "optimizer_bytes_per_param from preset:adamw under preset:mixed-bf16",
        "shards": "world_size from argument",
    }
    assert "section 5" in line.citation


@pytest.mark.parametrize("quantity", [q for q in QUANTITIES if q not in {"offload", "activations", "step"}])
def test_every_quantity_sums_its_lines(quantity):
    job = zerocalc.job("7b", dp=8, gpu="80GB", offload_optimizer="cpu")
    answer = zerocalc.explain(job, quantity)
    for strategy in COMPARED[1:]:
        assert answer.totals[strategy] == sum(
            line.value for line in answer.lines if line.strategy == strategy
        )


def test_the_peak_is_explained_by_what_is_live_in_it():
    job = zerocalc.job("llama-3-8b", dp=8, micro_batch=1, seq_len=4096, strategy="zero3")
    answer = zerocalc.explain(job, "peak", strategies=["zero3"])
    assert answer.totals["zero3"] == zerocalc.estimate(job).results[0].memory.gpu.peak_bytes


def test_the_offload_paper_s_table():
    lines = {line.part: line.value for line in zerocalc.explain(zerocalc.job("10b", dp=1), "offload").lines}
    # ZeRO-Offload table 1 (16M, 14M, 4M, 2M on the GPU) and section 6.2.2 (4M least, L2L 28M).
    assert [lines[name] // 10**10 for name in ("baseline", "grads", "optimizer", "zero-offload")] == [
        16,
        14,
        4,
        2,
    ]
    assert (lines["ideal"], lines["l2l"]) == (4 * 10**10, 28 * 10**10)


def test_an_unknown_quantity_suggests():
    with pytest.raises(UnknownNameError, match="did you mean"):
        zerocalc.explain(zerocalc.job("7b", dp=8), "optimiser_states")


def test_a_framework_is_not_contrasted_with_itself():
    with pytest.raises(UsageError):
        zerocalc.contrast(zerocalc.job("7b", dp=8), "paper")


def test_megatron_shards_only_the_optimizer():
    answer = zerocalc.contrast(zerocalc.job("7b", dp=8), "megatron", strategies=["zero1"])
    lines = {line.name: line for line in answer.lines}
    # fp32 main gradients: 6 + 12/d bytes per parameter against 4 + 12/d (Megatron-LM, dist_optimizer.md).
    assert lines["grads"].difference_bytes == 2 * 7 * 10**9
    assert "bytes per parameter of the model: paper 2, megatron 4" in lines["grads"].because
    assert lines["total"].difference_bytes == sum(
        line.difference_bytes for name, line in lines.items() if name != "total"
    )


@pytest.mark.parametrize("strategy", ["ddp", "zero2", "zero3", "hsdp"])
def test_the_step_s_bounds_are_what_the_explanation_comes_to(strategy):
    job = zerocalc.job(
        "llama-3-8b", gpus=16, node="dgx-h100", micro_batch=2, seq_len=4096, shard_size=8, strategy=strategy
    )
    lines = {
        (line.name, line.part): line for line in zerocalc.explain(job, "step", strategies=[strategy]).lines
    }
    time = zerocalc.estimate(job).results[0].time
    assert lines["step", "at least"].value == pytest.approx(time.step_s.lower, rel=1e-12)
    assert lines["step", "at most"].value == pytest.approx(time.step_s.upper, rel=1e-12)
    assert lines["compute", "least"].value == pytest.approx(time.compute.seconds.lower, rel=1e-12)


def test_a_step_is_not_explained_without_a_batch():
    with pytest.raises(UsageError, match="need a batch"):
        zerocalc.explain(zerocalc.job("7b", dp=8, gpu="h100"), "step")


def test_what_is_not_sharded_says_so():
    (line,) = zerocalc.explain(zerocalc.job("7b", dp=8), "params", strategies=["zero1"]).lines
    assert {item.name: item.origin for item in line.inputs}["shards"] == "zero1 keeps it whole"
