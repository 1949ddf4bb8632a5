"""Activations as terms: the sums of what was measured, one phase for the turn, nothing added twice."""

from __future__ import annotations

import pytest

import zerocalc
from zerocalc.activations.tables import IMPLEMENTATIONS
from zerocalc.formulas.loss import LOSSES
from zerocalc.frameworks.activation_settings import ACTIVATION_SETTINGS


def gpu(**words):
    """The GPU's memory of Llama-3-8B on 8 ranks under ZeRO-3."""
    settings = words.pop("settings", None)
    job = zerocalc.job("llama-3-8b", dp=8, strategy="zero3", settings=settings, **words)
    return zerocalc.estimate(job).results[0].memory.gpu


def term(memory, name):
    return sum(t.bytes for t in memory.terms if t.name == name)


def test_choices_are_the_tables():
    choices = {row.name: row.choices for row in ACTIVATION_SETTINGS if row.choices}
    assert choices["activations"] == tuple(IMPLEMENTATIONS)
    assert choices["loss"] == tuple(LOSSES)


def test_llama_layers_keep_what_was_measured():
    # measured/REPORT section 7, Llama bf16 flash: 20h + 4k + 8i + 4a + 8 bytes per token and layer.
    h, kv, i, heads, layers, tokens = 4096, 8 * 128, 14336, 32, 32, 2 * 1024
    memory = gpu(micro_batch=2, seq_len=1024)
    assert term(memory, "activations") == layers * tokens * (20 * h + 4 * kv + 8 * i + 4 * heads + 8)


def test_checkpointing_keeps_the_inputs_and_one_layer():
    # 2h per token and layer in bf16.
    memory = gpu(micro_batch=2, seq_len=1024, checkpointing="full")
    assert term(memory, "activation_checkpoints") == 32 * 2 * 1024 * 2 * 4096


def test_the_turn_is_the_largest_moment_never_the_sum():
    memory = gpu(micro_batch=1, seq_len=8192)
    live = [t for t in memory.terms if "forward_backward" in t.phases]
    assert memory.phases["forward_backward"] == sum(t.bytes for t in live)
    # measured/REPORT section 7: 12V bytes per token in loss backward.
    assert term(memory, "logits") == 8192 * 12 * 128_256


def test_a_fused_loss_is_smaller_than_the_logits():
    plain, fused = (
        gpu(micro_batch=1, seq_len=8192),
        gpu(micro_batch=1, seq_len=8192, settings={"loss": "fused"}),
    )
    assert term(fused, "logits") < term(plain, "logits") / 4


def test_zero_r_splits_checkpoints_over_the_tensor_parallel_ranks():
    words = {"micro_batch": 32, "seq_len": 1024, "checkpointing": "full", "tp": 8}
    whole, split = gpu(**words), gpu(**words, settings={"partition_activations": True})
    assert term(whole, "activation_checkpoints") == 8 * term(split, "activation_checkpoints")


def test_zero_r_moves_checkpoints_to_the_host():
    job = zerocalc.job(
        "llama-3-8b", dp=8, strategy="zero3", micro_batch=4, seq_len=1024, checkpointing="full",
        settings={"cpu_checkpointing": True},
    )  # fmt: skip
    result = zerocalc.estimate(job).results[0]
    assert term(result.memory.gpu, "activation_checkpoints") == 0
    kept = 32 * 4 * 1024 * 2 * 4096
    assert term(result.memory.cpu, "activation_checkpoints") == kept
    host = result.communication.links.host
    assert (host.to_host_bytes, host.from_host_bytes) == (kept, kept)


def test_without_a_batch_only_states_are_counted_and_it_says_so():
    answer = zerocalc.estimate(zerocalc.job("llama-3-8b", dp=8, strategy="zero3"))
    assert any(line.startswith("activations") for line in answer.excluded)


@pytest.mark.parametrize("given", [{"micro_batch": 1}, {"seq_len": 128}])
def test_half_a_batch_is_said(given):
    answer = zerocalc.estimate(zerocalc.job("llama-3-8b", dp=8, strategy="zero3", **given))
    assert any("activations need both" in line for line in answer.warnings)


def test_every_pipeline_stage_is_judged_and_the_heaviest_answers():
    job = zerocalc.job(
        "llama-3-8b", gpus=32, pp=4, grad_accum=8, micro_batch=1, seq_len=4096, strategy="zero1"
    )
    result = zerocalc.estimate(job).results[0]
    # 1F1B: stage 0 holds four micro-batches in flight, the last one.
    assert result.rank_class == "stage 0"
    per_layer_and_micro_batch = 4096 * (20 * 4096 + 4 * 1024 + 8 * 14336 + 4 * 32 + 8)
    assert term(result.memory.gpu, "activations") == 4 * 8 * per_layer_and_micro_batch
