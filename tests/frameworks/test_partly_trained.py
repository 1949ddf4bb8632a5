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
    memory = gpu(
        "8b", gpus=1, strategy="ddp", framework=framework, optimizer=optimizer, precision="bf16-pure"
    )
    assert held(memory, state="optimizer_states") == pytest.approx(states * 8 * 10**9, rel=1e-9, abs=4)


def gathers(**words):
    """Bytes that are gathered in forward and in backward, by part."""
    job = zerocalc.job("llama-3-8b", gpus=8, strategy="zero3", **words)
    rows = zerocalc.estimate(job).results[0].communication.collectives
    return {(row.part, row.phase): row.sent_bytes for row in rows if row.op == "all_gather"}


def test_a_reference_model_runs_forward_only():
    found = gathers(also=["reference:llama-3-8b"])
    whole = 7 * 2 * PARAMS // 8
    assert found == {
        ("dense", "forward"): whole,
        ("dense", "backward"): whole,
        ("reference:llama-3-8b", "forward"): whole,
    }


def test_a_frozen_base_is_gathered_for_its_adapter_s_backward_too():
    assert {phase for part, phase in gathers(lora_rank=8) if part == "frozen"} == {"forward", "backward"}


def test_the_largest_layer_of_several_models_is_the_working_memory():
    """A teacher's embedding of 128256 x 8192, without gradients, beside the student's of 128256 x 4096 with them."""
    words = {"gpus": 8, "strategy": "zero3"}
    student = held(gpu(**words), name="gathered_unit")
    assert student == 2 * 2 * 128256 * 4096
    taught = held(gpu(also=["teacher:llama-3.1-405b"], **words), name="gathered_unit")
    assert (
        taught == 2 * 3_187_703_808
    )  # a layer of 405B: 16384 wide, 53248 inside, 8 of 128 heads for keys and values


def test_experts_that_lie_whole_are_not_gathered():
    """Mixtral over 8 expert-parallel ranks: each keeps its expert, so only the rest of a layer is gathered."""
    memory = gpu("mixtral-8x7b", gpus=8, ep=8, strategy="zero3")
    embedding, rest = 32000 * 4096, 2 * 4096 * 4096 + 2 * 1024 * 4096 + 8 * 4096 + 2 * 4096
    assert held(memory, name="gathered_unit") == 4 * max(embedding, rest)
    more = gpu("mixtral-8x7b", gpus=16, ep=8, strategy="zero3")
    assert held(more, name="gathered_unit") == 4 * (rest + 3 * 4096 * 14336)


def frozen_gathers(frozen_dtype):
    settings = {
        f"stage3_{name}": 0 for name in ("max_live_parameters", "max_reuse_distance", "prefetch_bucket_size")
    }
    words = {"gpus": 8, "framework": "deepspeed", "lora_rank": 16, "settings": settings}
    answer = zerocalc.estimate(zerocalc.job("llama-3-8b", frozen_dtype=frozen_dtype, **words))
    rows = answer.results[0].communication.collectives
    sizes = [row.full_bytes for row in rows if row.part == "frozen" and row.op == "all_gather"]
    return sum(sizes), answer.assumptions


def test_stage_3_gathers_a_quantised_base_as_it_is_packed():
    # Two passes of half a byte per parameter; norms (266,240 parameters) stay whole under the persistence threshold.
    packed, said = frozen_gathers("nf4")
    assert packed == pytest.approx(2 * (PARAMS - 266_240) / 2, rel=1e-6)
    assert any("packed into bf16 elements" in text for text in said)
    whole, said = frozen_gathers("bf16")
    assert whole == 4 * packed
    assert not any("packed" in text for text in said)
