"""Seconds as people read them: always both bounds, always with what they rest on."""

import csv
import io
from dataclasses import replace

import pytest

import zerocalc
from zerocalc.questions.crossover import crossovers
from zerocalc.render import Look, render
from zerocalc.results.time import Crossover

WORDS = {"gpus": 16, "node": "dgx-h100", "micro_batch": 1, "seq_len": 8192, "checkpointing": "full"}


@pytest.fixture(scope="module")
def comparison():
    return zerocalc.compare(zerocalc.job("llama-3-8b", **WORDS))


def _text(result, **look):
    return " ".join(render(result, "table", Look(**look)).split())


def test_a_comparison_shows_both_bounds_and_how_far_apart_they_are(comparison):
    text = _text(comparison)
    assert "Strategy Step Spread Compute Across nodes Exposed Tokens/s" in text
    assert "ZeRO-3 0.568–1.96 3.45× 0.568–1.83 0.113–0.132 0.00493 66,912–230,672" in text
    assert "at most: compute at 35% of peak (assumed), nothing overlapped" in text


def test_bounds_are_written_in_ascii_too(comparison):
    assert "ZeRO-3 0.568-1.96 3.45x" in _text(comparison, ascii=True)


def test_an_estimate_names_every_part_and_every_rate():
    job = zerocalc.job("llama-3-8b", strategy="zero3", offload_optimizer="cpu", tokens="1t", **WORDS)
    text = _text(zerocalc.estimate(job))
    assert "tokens per GPU that hide it Part GB GB/s Seconds Hidden from" in text
    assert "Across nodes 45.2 384–400 0.113–0.132 593" in text
    assert (
        "ZeRO-3's traffic across nodes: hidden from 593 tokens per GPU and step on (8,192 here, enough)"
        in text
    )
    assert "CPU optimizer – – 2.85 –" in text
    assert "Step 2.85–4.85" in text
    assert "Exposed: 0.00493 s that nothing can hide" in text
    assert "Training: 1,000,000,000,000 tokens take 251.5–427.8 days, 96,558–164,289 GPU-hours" in text
    for rate in (
        "989.4 TFLOP/s (preset:h100-sxm-80)",
        "35 % of peak (assumed)",
        "400 GB/s per node (preset:dgx-h100)",
    ):
        assert rate in text


def test_csv_carries_the_bounds_unrounded(comparison):
    rows = list(csv.DictReader(io.StringIO(render(comparison, "csv"))))
    for result in comparison.results:
        step = result.time.step_s
        shown = {(r["step_lower_s"], r["step_upper_s"]) for r in rows if r["strategy"] == result.strategy}
        assert shown == {(str(step.lower), str(step.upper))}
    assert "step_lower_s" not in render(zerocalc.compare(zerocalc.job("7b", dp=8)), "csv")


def test_traffic_that_cannot_be_timed_is_said():
    job = zerocalc.job("llama-3-8b", gpus=16, gpu="80GB", micro_batch=1, seq_len=4096, peak_flops="989T")
    for result in (zerocalc.compare(job), zerocalc.estimate(job)):
        assert "over links whose rates are not known is in no bound" in _text(result)


def test_a_rates_origin_stands_in_the_request():
    request = zerocalc.estimate(zerocalc.job("llama-3-8b", mfu="0.4", tokens="1t", **WORDS)).request
    origins = {word: request[word].origin for word in ("mfu", "tokens", "peak_flops_per_s")}
    assert origins == {"mfu": "argument", "tokens": "argument", "peak_flops_per_s": "preset:h100-sxm-80"}


def test_what_saved_memory_costs_in_time(comparison):
    text = _text(comparison)
    assert (
        "ZeRO-3: +0.00 to +0.0441 s a step against ZeRO-2; compute hides the wire from 593 tokens per GPU and step on"
        in text
    )
    shorter = Crossover(
        framework="paper", strategy="zeropp", against="zero3",
        lower_difference_s=-0.0012, upper_difference_s=-0.0012, tokens_to_hide=None,
    )  # fmt: skip
    assert "ZeRO++: −0.00120 s a step against ZeRO-3" in _text(replace(comparison, crossovers=[shorter]))


def test_pairs_are_of_one_framework_and_differ_by_their_bounds():
    job = zerocalc.job("llama-3-8b", **WORDS)
    result = zerocalc.compare(job, strategies=["zero2", "zero3", "hsdp"], frameworks=["paper", "pytorch"])
    assert [(p.framework, p.strategy, p.against) for p in result.crossovers] == [
        (framework, *pair)
        for framework in ("paper", "pytorch")
        for pair in (("zero3", "zero2"), ("hsdp", "zero3"))
    ]
    times = {(row.framework, row.strategy): row.time for row in result.results}
    for pair in crossovers(result.results):
        ours, theirs = (times[pair.framework, name].step_s for name in (pair.strategy, pair.against))
        assert pair.upper_difference_s == ours.upper - theirs.upper
        assert pair.lower_difference_s == ours.lower - theirs.lower
