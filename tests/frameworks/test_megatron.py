"""Megatron against its own documentation, published runs, and what must hold for every job."""

from __future__ import annotations

import json
from math import ceil
from pathlib import Path

import pytest

import zerocalc
from zerocalc.evaluate import evaluate, inapplicable, plans
from zerocalc.frameworks import prepared
from zerocalc.frameworks.megatron import STRATEGIES
from zerocalc.frameworks.megatron.states import weight_shapes

DATA = Path(__file__).parents[1] / "data"
WORKED = {case["id"]: case for case in json.loads((DATA / "worked.json").read_text())["cases"]}
MIB = 2**20


def megatron(model, strategy="zero1", settings=None, **words):
    return zerocalc.job(model, framework="megatron", strategy=strategy, settings=settings, **words)


def states(model, strategy="zero1", settings=None, **words):
    """Model states on the rank that holds most."""
    result, _ = evaluate(megatron(model, strategy, settings, **words))
    return result.memory.gpu.model_states_bytes


@pytest.mark.parametrize(
    ("precision", "strategy", "expected"),
    [
        ("bf16", "zero1", "bf16"),
        ("fp16", "zero1", "fp16"),
        ("fp32", "zero1", "fp32"),
        ("bf16", "ddp", "nondist_bf16"),
    ],
)
def test_documented_bytes_per_parameter(precision, strategy, expected):
    case = WORKED["megatron_dist_opt"]
    got = states(case["inputs"]["params"], strategy, dp=case["inputs"]["d"], precision=precision)
    assert got == case["expect"][expected]


@pytest.mark.parametrize(("precision", "per_param"), [("bf16", 18), ("fp16", 20), ("fp32", 16)])
def test_without_the_distributed_optimizer(precision, per_param):
    assert states(10**9, "ddp", dp=64, precision=precision) == per_param * 10**9


BF16_MOMENTS = {
    "use_precision_aware_optimizer": True, "store_param_remainders": False,
    "exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16",
}  # fmt: skip


def test_deepseek_v3_shards_experts_over_their_own_group():
    case = WORKED["dsv3_per_gpu"]
    total, routed = case["inputs"]["total"], case["inputs"]["routed"]
    job = megatron(total, expert_params=routed, gpus=2048, pp=16, ep=64, settings=BF16_MOMENTS)
    result, _ = evaluate(job)
    params = {t.part: t.bytes // 2 for t in result.memory.gpu.terms if t.state == "params"}
    assert params == {
        "dense": case["expect"]["other_params_gpu"],
        "expert": case["expect"]["expert_params_gpu"],
    }
    groups = {t.part: t.sharded_over for t in result.memory.gpu.terms if t.state == "optimizer_states"}
    assert groups == {"dense": case["expect"]["dp"], "expert": case["expect"]["edp"]}
    # Whole elements are sharded; the printed figure divides bytes.
    assert 0 <= result.memory.gpu.model_states_bytes - case["expect"]["bytes"] < 8


@pytest.mark.parametrize(
    ("settings", "per_param", "over"),
    [
        (
            {"use_precision_aware_optimizer": True},
            6,
            10,
        ),  # two of an fp32 main parameter's four bytes are the parameter
        ({"use_precision_aware_optimizer": True, "store_param_remainders": False}, 6, 12),
        ({"use_precision_aware_optimizer": True, "main_params_dtype": "fp16"}, 6, 10),
        ({"use_precision_aware_optimizer": True, "main_grads_dtype": "bf16"}, 4, 10),
        (BF16_MOMENTS | {"exp_avg_dtype": "fp8"}, 6, 7),
        ({"grad_reduce_in_bf16": True}, 4, 16),  # the step makes fp32 gradients of its share
        ({"accumulate_allreduce_grads_in_fp32": True}, 6, 12),
    ],
)
def test_settings_move_bytes_per_parameter(settings, per_param, over):
    assert states(8 * 10**9, dp=8, settings=settings) == (per_param + over / 8) * 8 * 10**9


def collectives(model, strategy="zero1", settings=None, **words):
    result, _ = evaluate(megatron(model, strategy, settings, **words))
    return [
        (c.op, c.tensor, c.dtype, c.group_size, c.count, c.full_bytes, c.sent_bytes)
        for c in result.communication.collectives
    ]


def test_gradients_travel_in_fp32_once_a_step():
    total = 8 * 10**9
    expected = [
        ("reduce_scatter", "grads", "fp32", 8, 1, 4 * total, 7 * 4 * total // 8),
        ("all_gather", "params", "bf16", 8, 1, 2 * total, 7 * 2 * total // 8),
    ]
    assert collectives(total, dp=8, grad_accum=16) == expected
    whole = ("all_reduce", "grads", "fp32", 8, 1, 4 * total, 14 * 4 * total // 8)
    assert collectives(total, "ddp", dp=8, grad_accum=16) == [whole]


def test_buckets_change_the_calls_and_hardly_the_bytes():
    words = {"dp": 8, "micro_batch": None}
    (_, _, _, _, one, whole, _), _ = collectives("llama-3-8b", **words)
    (_, _, _, _, many, split, _), _ = collectives(
        "llama-3-8b", settings={"overlap_grad_reduce": True}, **words
    )
    (_, _, _, _, fewer, _, _), _ = collectives(
        "llama-3-8b", settings={"overlap_grad_reduce": True, "ddp_bucket_size": "1e9"}, **words
    )
    assert one == 1
    assert many > fewer > one
    assert whole <= split < whole * 1.0001


def test_sequence_parallelism_trades_all_reduces_for_gathers_and_scatters():
    words = {"gpus": 8, "tp": 4, "micro_batch": 2, "seq_len": 1024, "grad_accum": 3}
    plain = [c for c in collectives("llama-3-8b", **words) if c[1] == "activations"]
    split = [
        c
        for c in collectives("llama-3-8b", settings={"sequence_parallel": True}, **words)
        if c[1] == "activations"
    ]
    hidden = 2 * 1024 * 4096 * 2
    layers = 32 * 3
    assert [c[:1] + c[3:6] for c in plain] == [("all_reduce", 4, 2 * layers, 2 * layers * hidden)] * 2
    # Gathering both inputs again in backward is what sequence parallelism adds to four all-reduces.
    assert sum(c[-1] for c in split) == sum(c[-1] for c in plain) + 2 * layers * 3 * hidden // 4


def test_every_strategy_it_has_and_no_other():
    assert {"ddp", "zero1"} == STRATEGIES
    assert "ddp, zero1" in (inapplicable(megatron(10**9, "zero3", dp=8)) or "")
    with pytest.raises(zerocalc.UsageError, match="use_distributed_optimizer=false is not strategy zero1"):
        evaluate(megatron(10**9, dp=8, settings={"use_distributed_optimizer": False}))


def test_settings_without_effect_are_reported():
    job = megatron(10**9, dp=8, settings={"exp_avg_dtype": "bf16", "ddp_bucket_size": 10})
    warnings = zerocalc.estimate(job).warnings
    assert "exp_avg_dtype has no effect without use_precision_aware_optimizer" in warnings
    assert "ddp_bucket_size has no effect without overlap_grad_reduce" in warnings
    sharded = megatron(10**9, "ddp", dp=8, settings={"use_precision_aware_optimizer": True})
    assert any("no effect under ddp" in warning for warning in zerocalc.estimate(sharded).warnings)
    typed = megatron(10**9, dp=8, grad_dtype="fp16")
    assert any(
        warning.startswith("grad_dtype fp16 has no effect") for warning in zerocalc.estimate(typed).warnings
    )


@pytest.mark.parametrize(("tp", "rows"), [(1, 128_256), (4, 128_512), (8, 129_024)])
def test_the_vocabulary_is_padded_for_tensor_parallelism(tp, rows):
    job = prepared(megatron("llama-3-8b", gpus=8, tp=tp))
    embedding = next(t for t, _ in job.model.layout.grouped() if t.kind == "embedding")
    assert embedding.shape == (rows, 4096)
    assert job.model.num_params == 8_030_261_248 + 2 * (rows - 128_256) * 4096


def test_buffers_start_parameters_at_64_and_end_at_the_group():
    job = megatron("llama-3-8b", dp=24)
    (view, plan), *_ = plans(job)
    held = next(t.bytes for t in plan.terms if t.name == "params") // 2
    exact = sum(count * ceil(t.numel / 64) * 64 for t, count in view.layout.grouped())
    assert held == ceil(exact / 384) * 384  # the least common multiple of 24 and 128


def test_packed_weights_have_one_placeholder_each():
    (view, _), *_ = plans(megatron("llama-3-8b", dp=8))
    layer = next(unit for unit in view.layout.units if unit.is_layer)
    assert sorted(weight_shapes(layer)) == [(4096, 4096), (4096, 14336), (6144, 4096), (28672, 4096)]


@pytest.mark.parametrize(
    ("tp", "cp", "pp", "gpus", "group"),
    [(8, 1, 16, 8192, 64), (8, 1, 16, 16384, 128), (8, 16, 16, 16384, 128)],
)
def test_llama_3_405b_layouts(tp, cp, pp, gpus, group):
    """Table 4 of the Llama 3 report: context-parallel ranks hold the same parameters, so both shard optimizer states."""
    job = megatron("llama-3.1-405b", gpus=gpus, tp=tp, cp=cp, pp=pp)
    classes = plans(job)
    assert sum(view.num_ranks for view, _ in classes) == gpus
    assert {t.sharded_over for _, plan in classes for t in plan.terms if t.state == "optimizer_states"} == {
        group
    }
    matrices = sum(
        view.num_ranks * tp * pp // gpus * t.numel * count
        for view, _ in classes
        for t, count in view.layout.grouped()
        if t.kind != "norm"
    )
    padding = 2 * (129_024 - 128_256) * 16384
    assert matrices == 405_853_388_800 - (2 * 126 + 1) * 16384 + padding


def test_uneven_first_and_last_stages():
    settings = {"num_layers_in_first_pipeline_stage": 6, "num_layers_in_last_pipeline_stage": 8}
    sizes = {
        view.name: view.layout.num_layers
        for view, _ in plans(megatron("llama-3-8b", gpus=4, pp=4, settings=settings))
    }
    assert sizes == {"stage 0": 6, "stages 1-2": 9, "stage 3": 8}
    with pytest.raises(zerocalc.UsageError, match="do not divide"):
        plans(
            megatron(
                "llama-3-8b",
                gpus=4,
                pp=4,
                settings={"num_layers_in_first_pipeline_stage": 6, "num_layers_in_last_pipeline_stage": 7},
            )
        )


def activations(settings=None, **words):
    """Bytes of the layers' activations by stage."""
    given = {"gpus": 4, "pp": 4, "micro_batch": 1, "seq_len": 512} | words
    return [
        sum(t.bytes for t in plan.terms if t.name.startswith("activation"))
        for _, plan in plans(megatron("llama-3-8b", settings=settings, **given))
    ]


def test_earlier_stages_hold_more_micro_batches():
    first, middle, last = activations(grad_accum=32)
    assert (first, middle) == (4 * last, 3 * last)
    assert activations(grad_accum=2) == [2 * last, 2 * last, last]


@pytest.mark.parametrize(
    ("chunks", "micro_batches", "held"),
    [(1, 8, 4 * 8), (2, 8, (2 * 3 + 4 + 1) * 4), (8, 8, (2 * 3 + 7 * 4 + 1) * 1), (2, 1, 2 * 4)],
)
def test_interleaving_holds_more_layers_on_the_first_stage(chunks, micro_batches, held):
    """p·v + p − 1 chunks of L/(p·v) layers: the factor 1 + (p − 1)/(p·v) of the paper."""
    one_layer = activations(pp=1, gpus=1)[0] // 32
    settings = {"virtual_pipeline_model_parallel_size": chunks}
    assert activations(settings, grad_accum=micro_batches)[0] == held * one_layer


# Published allocations (SimuMax's Megatron runs on 8 B200): layers, tp, pp, cp, sequence, MiB.
LLAMA = {
    "70b": {
        "hidden_size": 8192,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "intermediate_size": 28672,
    },
    "405b": {
        "hidden_size": 16384,
        "num_attention_heads": 128,
        "num_key_value_heads": 16,
        "intermediate_size": 53248,
    },
}


@pytest.mark.parametrize(
    ("model", "layers", "tp", "pp", "cp", "seq_len", "mib", "within"),
    [
        ("70b", 12, 1, 2, 1, 4096, 68149.2, 0.003),
        ("70b", 12, 4, 1, 1, 4096, 40009.77, 0.003),
        ("70b", 12, 8, 1, 1, 4096, 28965.36, 0.003),
        ("405b", 4, 1, 2, 1, 4096, 89173.4, 0.003),
        ("405b", 4, 4, 1, 1, 4096, 54158.11, 0.003),
        ("405b", 4, 8, 1, 1, 4096, 39499.85, 0.003),
        ("70b", 12, 2, 1, 4, 32768, 70070.56, 0.03),
        ("405b", 4, 2, 1, 4, 131072, 120962.51, 0.03),
    ],
)
def test_published_allocations(tmp_path, model, layers, tp, pp, cp, seq_len, mib, within):
    config = tmp_path / "config.json"
    shape = LLAMA[model] | {"model_type": "llama", "vocab_size": 128256, "tie_word_embeddings": False}
    config.write_text(json.dumps(shape | {"num_hidden_layers": layers}))
    job = megatron(
        str(config), gpus=8, tp=tp, pp=pp, cp=cp, micro_batch=1, seq_len=seq_len, grad_accum=4,
        settings={"sequence_parallel": True, "cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "te"},
    )  # fmt: skip
    result, _ = evaluate(job)
    assert result.memory.gpu.peak_bytes == pytest.approx(mib * MIB, rel=within)


def test_every_term_can_be_recomputed():
    job = megatron("qwen3-30b-a3b", gpus=16, tp=2, pp=2, ep=4, micro_batch=1, seq_len=2048, grad_accum=8)
    for _, plan in plans(job):
        for term in plan.terms:
            assert term.amount.value == int(term.amount.value)
            assert term.amount.expression
            assert term.amount.source in __import__("zerocalc.sources", fromlist=["SOURCES"]).SOURCES


def test_optimizer_offload_rests_on_the_host():
    result, _ = evaluate(megatron(8 * 10**9, dp=8, offload_optimizer="cpu"))
    assert result.memory.gpu.model_states_bytes == 6 * 8 * 10**9
    assert result.memory.cpu.bytes_per_rank == 12 * 10**9
    assert result.communication.links.host.to_host_bytes == 4 * 10**9
    assert result.communication.links.host.from_host_bytes == 2 * 10**9


LATENT = {
    "model_type": "deepseek_v3", "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "num_attention_heads": 128, "tie_word_embeddings": False, "num_hidden_layers": 4, "first_k_dense_replace": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "mib"),
    [
        (
            {
                "hidden_size": 5120, "vocab_size": 102400, "n_routed_experts": 160, "num_experts_per_tok": 6,
                "moe_intermediate_size": 1536, "intermediate_size": 12288, "n_shared_experts": 2,
            },
            46730.0,
        ),
        (
            {
                "hidden_size": 7168, "vocab_size": 129280, "n_routed_experts": 256, "num_experts_per_tok": 8,
                "moe_intermediate_size": 2048, "intermediate_size": 18432, "n_shared_experts": 1,
            },
            106803.8,
        ),
    ],
    ids=["deepseek-v2", "deepseek-v3"],
)  # fmt: skip
def test_published_allocations_of_mixtures(tmp_path, config, mib):
    """Experts over eight ranks, latent attention: within a percent of the measured peak."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LATENT | config))
    job = megatron(
        str(path), gpus=8, ep=8, micro_batch=1, seq_len=4096, grad_accum=4,
        settings={"cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "te"},
    )  # fmt: skip
    result, _ = evaluate(job)
    assert result.memory.gpu.peak_bytes == pytest.approx(mib * MIB, rel=0.01)
