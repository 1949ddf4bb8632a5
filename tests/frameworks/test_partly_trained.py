"""Parts of a model that are trained, copied or quantised on their own: frozen shares, adapters, FP8 copies."""

from __future__ import annotations

import pytest

import zerocalc

PARAMS = 8_030_261_248
"""Llama-3-8B."""
TRAINED = -(-PARAMS // 10)


def gpu(model="llama-3-8b", **words):
    return zerocalc.estimate(zerocalc.job(model, **words)).results[0].memory.gpu


def held(memory, **wanted):
    return sum(
        t.bytes for t in memory.terms if all(getattr(t, key) == value for key, value in wanted.items())
    )


@pytest.mark.parametrize(
    ("framework", "optimizer", "states"),
    [
        # bf16 throughout: two int8 moments with a scale per 256 elements; one bf16 momentum; nothing but rows and columns.
        ("paper", "adam8bit", 2 + 8 / 256),
        ("paper", "muon", 2),
        ("paper", "adafactor", 0),
        ("pytorch", "adam8bit", 2 + 8 / 256),
        ("pytorch", "muon", 2),
        ("megatron", "adam8bit", 2 + 8 / 256),
    ],
)
def test_states_are_those_of_the_trained_share_alone(framework, optimizer, states):
    """Which tensors are trained is not known: each trained parameter costs what one of a large matrix does."""
    memory = gpu(
        gpus=1,
        strategy="ddp",
        framework=framework,
        optimizer=optimizer,
        precision="bf16-pure",
        trainable="10%",
    )
    assert held(memory, state="optimizer_states") == pytest.approx(states * TRAINED, rel=1e-9, abs=4)


def test_every_parameter_trained_is_no_share():
    words = {"gpus": 1, "strategy": "ddp", "optimizer": "adam8bit", "precision": "bf16-pure"}
    assert gpu(trainable="100%", **words).model_states_bytes == gpu(**words).model_states_bytes


def test_a_quantised_base_is_gathered_as_it_is_held():
    """QLoRA under ZeRO-3: the largest unit, the embedding, half a byte a parameter and no gradients."""
    memory = gpu(gpus=8, strategy="zero3", lora_rank=16, frozen_dtype="nf4")
    assert held(memory, name="gathered_unit") == 128256 * 4096 // 2


@pytest.mark.parametrize(
    ("framework", "strategy"), [("paper", "zero3"), ("paper", "ddp"), ("megatron", "zero1")]
)
def test_fp8_copies_only_the_weights_of_matrix_multiplications(framework, strategy):
    """Two one-byte copies of attention and MLP weights; embedding, head and norms stay as they are."""
    memory = gpu(gpus=8, strategy=strategy, framework=framework, precision="fp8-te")
    matrices = 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 4096 * 14336)
    shards = 8 if strategy == "zero3" else 1
    assert held(memory, name="weight_copies") == 2 * matrices // shards
    assert held(memory, name="params", part="dense") == 2 * PARAMS // shards


def test_of_a_bare_count_every_parameter_is_copied():
    assert held(gpu("7b", gpus=1, strategy="ddp", precision="fp8-te"), name="weight_copies") == 2 * 7 * 10**9


@pytest.mark.parametrize("framework", ["paper", "pytorch", "megatron"])
@pytest.mark.parametrize(("optimizer", "states"), [("adam8bit", 2 + 8 / 256), ("muon", 2), ("adafactor", 0)])
def test_a_bare_count_costs_what_a_large_matrix_does(framework, optimizer, states):
    memory = gpu("8b", gpus=1, strategy="ddp", framework=framework, optimizer=optimizer, precision="bf16-pure")
    assert held(memory, state="optimizer_states") == pytest.approx(states * 8 * 10**9, rel=1e-9, abs=4)
