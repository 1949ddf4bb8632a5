"""Published models against counts taken from transformers 5.24 (tests/data/params/counts.json): difference 0."""

import json
import time
from collections import Counter
from pathlib import Path

import pytest

from zerocalc.architectures import architecture
from zerocalc.architectures.counts import count_params
from zerocalc.layout import Architecture, Layout, Tensor, Unit

DATA = Path(__file__).parents[1] / "data" / "params"
COUNTS = {
    name: row for name, row in json.loads((DATA / "counts.json").read_text()).items() if name != "_meta"
}


@pytest.fixture(params=COUNTS)
def model(request):
    config = json.loads((DATA / "configs" / f"{request.param}.json").read_text())
    described = architecture(config, origin=request.param)
    return COUNTS[request.param], described.layout, count_params(described)


def test_totals(model):
    fact, _, counts = model
    assert counts.num_params == fact["total_params"]
    assert counts.num_params_tied_twice == fact["total_params_counting_tied_twice"]
    assert counts.num_input_embedding_params == fact["input_embedding_params"]
    if fact["model_type"] == "vit":
        return  # its classifier is a head, but not of a language model
    assert counts.num_head_params == fact["lm_head_params"]
    matrices = counts.num_input_embedding_params + (0 if fact["lm_head_tied"] else counts.num_head_params)
    assert counts.num_params - matrices == fact["non_embedding_params"]


def test_layers(model):
    fact, layout, counts = model
    runs = [
        (
            stack["path"],
            stack["layer_class"],
            kind["first_index"],
            kind["count"],
            kind["params"],
            kind["tensors"],
        )
        for stack in fact["stacks"]
        for kind in stack["kinds"]
    ]
    assert [(r.name, r.layer_class, r.first, r.count, r.params, r.tensors) for r in counts.layers] == runs
    assert counts.num_layers == fact["num_layers"]
    assert max(run.params for run in counts.layers) == fact["max_layer_params"]
    outside = {t.name: list(t.shape) for unit in layout.units if not unit.is_layer for t in unit.tensors}
    assert list(outside.items()) == list(fact["outside_layers"].items())


def test_largest(model):
    fact, _, counts = model
    assert (counts.largest_layer, counts.largest_layer_params) == (
        fact["largest_layer_module"],
        fact["largest_layer_params"],
    )
    largest = counts.largest_tensor
    assert {"name": largest.name, "shape": list(largest.shape), "numel": largest.numel} == fact[
        "largest_single_param"
    ]


def test_mixture_of_experts(model):
    fact, _, counts = model
    moe = fact["moe"] or {"routed_expert_params": 0, "router_params": 0, "shared_expert_params": 0}
    assert counts.num_expert_params == moe["routed_expert_params"]
    assert counts.num_router_params == moe["router_params"]
    assert counts.num_shared_expert_params == moe["shared_expert_params"]
    assert counts.num_active_params == fact["active_params_per_token"]
    if "active_excl_input_embedding" in moe:
        assert counts.num_active_params_excl_input_embedding == moe["active_excl_input_embedding"]


def test_tensors(model):
    fact, layout, counts = model
    shapes = Counter()
    for tensor, count in layout.grouped():
        shapes["x".join(map(str, tensor.shape))] += count
    assert shapes == fact["shapes"]
    assert counts.num_tensors == fact["num_tensors"]
    assert sum(t.numel * n for t, n in layout.grouped() if len(t.shape) == 1) == fact["tensor_numel_1d"]


def test_buffers_and_ties(model):
    fact, _, counts = model
    buffers = [
        {"name": b.name, "shape": list(b.shape), "persistent": b.persistent, "count": b.count}
        for b in counts.buffers
    ]
    assert buffers == fact["buffers"]
    tied = {tie.name for tie in counts.ties}
    assert bool(tied & {"lm_head.weight", "cls.predictions.decoder.weight"}) == fact["lm_head_tied"]


def test_rows_that_fsdp2_pads(model):
    fact, layout, _ = model
    for ranks, padded in fact["fsdp2_shard0_padded_params"].items():
        n = int(ranks)
        rows = sum(-(-t.shape[0] // n) * n * (t.numel // t.shape[0]) * count for t, count in layout.grouped())
        assert rows == padded


@pytest.mark.parametrize("name", ["deepseek-v3", "gemma-3-27b", "t5-11b", "llama-3.1-405b"])
def test_takes_under_five_milliseconds(name):
    config = json.loads((DATA / "configs" / f"{name}.json").read_text())

    def once():
        start = time.perf_counter()
        count_params(architecture(config))
        return time.perf_counter() - start

    assert min(once() for _ in range(5)) < 0.005


def test_experts_without_a_known_choice_leave_the_active_count_open():
    expert = Unit("model.layers", (Tensor("mlp.experts.down_proj", (4, 2, 2), "expert"),), 2, is_layer=True)
    counts = count_params(Architecture("safetensors", Layout((expert,))))
    assert counts.num_params == 32
    assert counts.num_active_params is None
    assert counts.num_active_params_excl_input_embedding is None


DEEPSEEK_V2 = {
    "model_type": "deepseek_v2", "vocab_size": 102400, "hidden_size": 5120, "num_hidden_layers": 60,
    "num_attention_heads": 128, "intermediate_size": 12288, "moe_intermediate_size": 1536, "n_routed_experts": 160,
    "num_experts_per_tok": 6, "first_k_dense_replace": 1,
}  # fmt: skip
KIMI_K2 = {
    "model_type": "kimi_k2", "architectures": ["DeepseekV3ForCausalLM"], "vocab_size": 163840,
    "num_attention_heads": 64, "n_routed_experts": 384, "first_k_dense_replace": 1,
}  # fmt: skip
FALCON_180B = {
    "model_type": "falcon", "hidden_size": 14848, "num_attention_heads": 232, "num_kv_heads": 8,
    "num_hidden_layers": 80, "new_decoder_architecture": True,
}  # fmt: skip
QWEN3_1_7B = {
    "model_type": "qwen3", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28,
    "num_attention_heads": 16, "num_key_value_heads": 8, "tie_word_embeddings": True,
}  # fmt: skip


def test_published_figures_of_other_models():
    kimi, falcon = count_params(architecture(KIMI_K2)), count_params(architecture(FALCON_180B))
    assert kimi.num_active_params_excl_input_embedding == 31_687_072_768
    held = sum(buffer.numel * buffer.count for buffer in kimi.buffers if buffer.persistent)
    assert kimi.num_params + held == 1_026_408_232_448  # as the hub counts stored tensors
    assert falcon.num_params_tied_twice == 179_522_565_120
    assert count_params(architecture(DEEPSEEK_V2)).num_active_params_excl_input_embedding == 20_851_512_320
    assert count_params(architecture(QWEN3_1_7B)).num_params_tied_twice == 2_031_739_904
