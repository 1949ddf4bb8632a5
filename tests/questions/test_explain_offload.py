"""`explain offload`: what the offload papers' tables say of one job, each line with its unit and the flags behind it."""

from __future__ import annotations

import pytest

import zerocalc
from zerocalc.errors import SpecError

V100 = {"peak_flops": "40T", "mfu": "1", "host_bandwidth": "12GB/s"}


def lines(model, **words):
    return {
        (line.name, line.part, line.tier): line
        for line in zerocalc.explain(zerocalc.job(model, **words), "offload").lines
    }


def test_tokens_that_hide_the_least_traffic_are_said_to_be_derived():
    job = zerocalc.job("10b", gpus=1, **V100)
    answer = zerocalc.explain(job, "offload")
    tokens = {line.part: line for line in answer.lines if line.name == "tokens_to_hide_traffic"}
    assert tokens["no recomputation"].value == pytest.approx(20000 / 9, rel=1e-12)
    assert tokens["full recomputation"].value == pytest.approx(5000 / 3, rel=1e-12)
    assert tokens["no recomputation"].unit == "token"
    assert any("derived" in text for text in answer.assumptions)
    origins = {item.name: item.origin for item in tokens["no recomputation"].inputs}
    assert origins["bandwidth_bytes_per_s"] == "host_bytes_per_s from argument"
    assert origins["flops_per_s"] == "peak_flops_per_s from argument, mfu from argument"


def test_what_the_job_does_not_say_is_left_out():
    assert {name for name, _, _ in lines("10b", gpus=1)} == {"kept_on_gpu", "moved_per_step"}
    batch = lines("10b", gpus=1, micro_batch=2, seq_len=1024)
    assert batch["arithmetic_intensity", "optimizer_states", ""].value == 512


def test_a_delayed_update_hides_the_shorter_of_gpu_and_host():
    words = {
        "gpus": 1,
        "strategy": "zero2",
        "offload_optimizer": "cpu",
        "micro_batch": 4,
        "seq_len": 1024,
        "gpu": "h100",
    }
    time = zerocalc.estimate(zerocalc.job("1b", **words, cpu_adam="1e9")).results[0].time
    delayed = lines("1b", **words, cpu_adam="1e9")["step_with_delayed_update", "upper bound", "host"]
    assert time.cpu_optimizer_s == 1
    assert delayed.value == pytest.approx(max(time.step_s.upper - 1, 1))
    assert delayed.unit == "s"


def test_thresholds_of_section_4_2():
    """More than 70 GB/s for half of 70 TFLOP/s at the smallest batch; 4 times that for the optimizer."""
    found = lines("1b", gpus=1, micro_batch=1, seq_len=1024, peak_flops="70T", host_bandwidth="70GB/s")
    assert found["efficiency", "params_and_grads", "cpu"].value > 0.5
    half = "bandwidth_for_50%"
    params, optimizer = (found[half, part, ""].value for part in ("params_and_grads", "optimizer_states"))
    assert optimizer == 4 * params
    # Activation checkpoints: under 1 GB/s beyond a hidden size of 8K.
    wide = lines("1x8193x1", gpus=1, peak_flops="70T", host_bandwidth="1GB/s")
    assert wide[half, "activation_checkpoints", ""].value < 1e9


def test_the_papers_transformer_with_its_heads_has_activations():
    """Korthikanti's table 2 for the 175B model: 34sbh and 5as²b a layer; its input alone when checkpointed."""
    words = {"gpus": 1, "strategy": "ddp", "micro_batch": 1, "seq_len": 2048, "attention": "eager"}
    settings = {"activations": "korthikanti"}

    def kept(name, **more):
        result = zerocalc.estimate(zerocalc.job("96x12288x96", settings=settings, **words, **more)).results[0]
        return next(term.bytes for term in result.memory.gpu.terms if term.name == name)

    assert kept("activations") == 96 * 2048 * 12288 * (34 + 80)
    assert kept("activation_checkpoints", checkpointing="full") == 96 * 2 * 2048 * 12288


def test_heads_must_divide_the_hidden_size():
    with pytest.raises(SpecError, match="do not divide"):
        zerocalc.job("2x10x3", gpus=1)


def test_without_heads_activations_are_said_to_be_missing():
    answer = zerocalc.estimate(zerocalc.job("2x128", gpus=1, strategy="ddp", micro_batch=1, seq_len=8))
    assert any("LxHxA" in warning for warning in answer.warnings)
