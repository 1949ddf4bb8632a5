"""Totals against the closed forms of FORMULAS.md, written as plain algebra, on random configs.

The algebra shares nothing with the package: defaults come from tests/data/params/defaults.json.
"""
# ruff: noqa: N806 - the equations' own symbols

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerocalc.architectures import architecture
from zerocalc.architectures.counts import count_params

DATA = Path(__file__).parents[1] / "data" / "params"
DEFAULTS = json.loads((DATA / "defaults.json").read_text())
DEFAULTS["kimi_k2"] = DEFAULTS["deepseek_v3"]
NULL_MEANS_DERIVED = {
    "num_key_value_heads", "head_dim", "n_inner", "ffn_hidden_size", "word_embed_proj_dim", "q_lora_rank",
    "num_decoder_layers", "num_ln_in_parallel_attn", "num_kv_heads", "mlp_only_layers",
}  # fmt: skip


def read(config):
    """The config with its class defaults: absent is the default, null stays null."""
    defaults = DEFAULTS[config["model_type"]]
    s = SimpleNamespace(**{key: config.get(key, default) for key, default in defaults.items()})
    s.V = getattr(s, "vocab_size", 0)
    s.t = bool(getattr(s, "tie_word_embeddings", False))
    return s


def llama_kin(s):
    """V, h, i, L, H, K, d and the four projections W, their biases B, the two matrices HEAD."""
    s.h, s.i, s.L, s.H = s.hidden_size, s.intermediate_size, s.num_hidden_layers, s.num_attention_heads
    s.K = s.H if s.num_key_value_heads is None else s.num_key_value_heads
    s.d = s.h // s.H if s.head_dim is None else s.head_dim
    s.W, s.B, s.HEAD = 2 * s.h * (s.H + s.K) * s.d, (s.H + 2 * s.K) * s.d + s.h, (2 - s.t) * s.V * s.h
    s.ab = bool(getattr(s, "attention_bias", False))
    return s


def gpt2(s):
    e, inner = s.n_embd, s.n_inner or 4 * s.n_embd
    return (
        (2 - s.t) * s.V * e
        + s.n_positions * e
        + s.n_layer * (4 * e * e + 2 * e * inner + 9 * e + inner)
        + 2 * e
    )


def gptj(s):
    e, inner = s.n_embd, s.n_inner or 4 * s.n_embd
    return (2 - s.t) * s.V * e + s.V + s.n_layer * (4 * e * e + 2 * e * inner + 3 * e + inner) + 2 * e


def gpt_neox(s):
    h, i, L = s.hidden_size, s.intermediate_size, s.num_hidden_layers
    return (
        (2 - s.t) * s.V * h + L * (4 * h * h + 2 * h * i + 5 * h + i + 4 * h * bool(s.attention_bias)) + 2 * h
    )


def opt(s):
    h, f, w = s.hidden_size, s.ffn_dim, s.word_embed_proj_dim or s.hidden_size
    a, b = bool(s.layer_norm_elementwise_affine), bool(s.enable_bias)
    last = bool(s.do_layer_norm_before) and not s._remove_final_layer_norm
    layer = 4 * h * h + 2 * h * f + b * (5 * h + f) + 4 * a * h
    return (
        (2 - s.t) * s.V * w
        + (s.max_position_embeddings + 2) * h
        + (w != h) * 2 * w * h
        + s.num_hidden_layers * layer
        + last * 2 * a * h
    )


def bloom(s):
    h = s.hidden_size
    return (2 - s.t) * s.V * h + 2 * h + s.n_layer * (12 * h * h + 13 * h) + 2 * h


def falcon(s):
    h, H, L = s.hidden_size, s.num_attention_heads, s.num_hidden_layers
    d, f, b = h // H, s.ffn_hidden_size or 4 * h, bool(s.bias)
    K = H if s.num_kv_heads is None else s.num_kv_heads
    q = (H + 2 * K) * d if s.new_decoder_architecture else h + 2 * d if s.multi_query else 3 * h
    ln = s.num_ln_in_parallel_attn
    n = 2 if not s.parallel_attn or ln == 2 or (ln is None and s.new_decoder_architecture) else 1
    return (2 - s.t) * s.V * h + L * (h * q + h * h + 2 * h * f + b * (q + 2 * h + f) + 2 * h * n) + 2 * h


def mpt(s):
    h = s.d_model
    return (2 - s.t) * s.V * h + s.n_layers * (12 * h * h + 2 * h) + h


def llama(s):
    llama_kin(s)
    layer = s.W + s.ab * s.B + 3 * s.h * s.i + bool(s.mlp_bias) * (2 * s.i + s.h) + 2 * s.h
    return s.HEAD + s.L * layer + s.h


def mistral(s):
    llama_kin(s)
    return s.HEAD + s.L * (s.W + 3 * s.h * s.i + 2 * s.h) + s.h


def mixtral(s):
    llama_kin(s)
    E = s.num_local_experts
    return s.HEAD + s.L * (s.W + 2 * s.h + E * 3 * s.h * s.i + E * s.h) + s.h


def qwen2(s):
    llama_kin(s)
    return s.HEAD + s.L * (s.W + (s.H + 2 * s.K) * s.d + 3 * s.h * s.i + 2 * s.h) + s.h


def qwen3(s):
    llama_kin(s)
    return s.HEAD + s.L * (s.W + s.ab * s.B + 2 * s.d + 3 * s.h * s.i + 2 * s.h) + s.h


def qwen3_moe(s):
    llama_kin(s)
    m, E = s.moe_intermediate_size, s.num_experts
    dense = s.mlp_only_layers or []
    nm = sum(1 for x in range(s.L) if x not in dense and E > 0 and (x + 1) % s.decoder_sparse_step == 0)
    return (
        s.HEAD
        + s.L * (s.W + s.ab * s.B + 2 * s.d + 2 * s.h)
        + nm * (E * 3 * s.h * m + E * s.h)
        + (s.L - nm) * 3 * s.h * s.i
        + s.h
    )


def gemma(s):
    llama_kin(s)
    return s.HEAD + s.L * (s.W + s.ab * s.B + 3 * s.h * s.i + 2 * s.h) + s.h


def gemma2(s):
    llama_kin(s)
    return s.HEAD + s.L * (s.W + s.ab * s.B + 3 * s.h * s.i + 4 * s.h) + s.h


def gemma3_text(s):
    return gemma2(s) + s.L * 2 * s.d


def phi(s):
    llama_kin(s)
    norms = bool(s.qk_layernorm) * 4 * (s.h // s.H)
    return s.HEAD + s.V + s.L * (s.W + s.B + 2 * s.h * s.i + s.i + 3 * s.h + norms) + 2 * s.h


def phi3(s):
    return mistral(s)


def deepseek(s):
    h, H, L, i = s.hidden_size, s.num_attention_heads, s.num_hidden_layers, s.intermediate_size
    p, r, v, c, q = s.qk_nope_head_dim, s.qk_rope_head_dim, s.v_head_dim, s.kv_lora_rank, s.q_lora_rank
    m, E, ab, mb = (
        s.moe_intermediate_size,
        s.n_routed_experts,
        bool(s.attention_bias),
        getattr(s, "mlp_bias", 0),
    )
    shared, nd = m * s.n_shared_experts, min(s.first_k_dense_replace, L)
    queries = H * (p + r) * h if q is None else h * q + ab * q + q + q * H * (p + r)
    attention = queries + (h + ab) * (c + r) + c + c * H * (p + v) + H * v * h + ab * h + 2 * h
    mlp = 3 * h * i + mb * (2 * i + h)
    moe = E * 3 * h * m + E * h + 3 * h * shared + mb * (2 * shared + h)
    return (2 - s.t) * s.V * h + L * attention + nd * mlp + (L - nd) * moe + h


def gpt_oss(s):
    llama_kin(s)
    E = s.num_local_experts
    experts = E * (3 * s.h * s.i + 2 * s.i + s.h) + E * (s.h + 1)
    return s.HEAD + s.L * (s.W + s.ab * s.B + s.H + 2 * s.h + experts) + s.h


def olmo2(s):
    llama_kin(s)
    return s.HEAD + s.L * (s.W + s.ab * s.B + (s.H + s.K) * s.d + 3 * s.h * s.i + 2 * s.h) + s.h


def starcoder2(s):
    llama_kin(s)
    b = bool(s.use_bias)
    return s.HEAD + s.L * (s.W + b * s.B + 2 * s.h * s.i + b * (s.i + s.h) + 4 * s.h) + 2 * s.h


def bert(s):
    h, i, V = s.hidden_size, s.intermediate_size, s.V
    tables = (s.max_position_embeddings + s.type_vocab_size + 2) * h
    layer = 4 * h * h + 2 * h * i + 9 * h + i
    return (2 - s.t) * V * h + V + tables + s.num_hidden_layers * layer + h * h + 3 * h + (not s.t) * V


def t5(s):
    D, f, g = s.d_model, s.d_ff, 3 if s.feed_forward_proj.startswith("gated") else 2
    N, x = s.num_heads * s.d_kv, 1 if s.t else 2
    decoder = s.num_layers if s.num_decoder_layers is None else s.num_decoder_layers
    return (
        x * s.V * D
        + s.num_layers * (4 * D * N + g * D * f + 2 * D)
        + decoder * (8 * D * N + g * D * f + 3 * D)
        + 2 * s.relative_attention_num_buckets * s.num_heads
        + 2 * D
    )


def vit(s, labels=2):
    h, i, p = s.hidden_size, s.intermediate_size, s.patch_size
    n = (s.image_size // p) ** 2
    layer = 4 * h * h + 2 * h * i + 6 * h + i + 3 * h * bool(s.qkv_bias)
    patches = s.num_channels * p * p * h + h
    return h + (n + 1) * h + patches + s.num_hidden_layers * layer + 2 * h + (h + 1) * labels


FORMS = {
    "gpt2": gpt2, "gptj": gptj, "gpt_neox": gpt_neox, "opt": opt, "bloom": bloom, "falcon": falcon, "mpt": mpt,
    "llama": llama, "mistral": mistral, "mixtral": mixtral, "qwen2": qwen2, "qwen3": qwen3, "qwen3_moe": qwen3_moe,
    "gemma": gemma, "gemma2": gemma2, "gemma3_text": gemma3_text, "phi": phi, "phi3": phi3,
    "deepseek_v2": deepseek, "deepseek_v3": deepseek, "kimi_k2": deepseek, "gpt_oss": gpt_oss, "olmo2": olmo2,
    "starcoder2": starcoder2, "bert": bert, "t5": t5, "vit": vit,
}  # fmt: skip
LAYERS = {
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "num_decoder_layers",
    "first_k_dense_replace",
}
HIDDEN, HEADS = (
    {"hidden_size", "n_embd", "d_model"},
    {"num_attention_heads", "n_head", "n_heads", "num_heads"},
)
SMALL = {
    "decoder_sparse_step": st.integers(1, 3),
    "mlp_only_layers": st.lists(st.integers(0, 9), max_size=4),
    "feed_forward_proj": st.sampled_from(["relu", "gated-gelu", "gelu", "gated-silu"]),
    "num_ln_in_parallel_attn": st.sampled_from([1, 2]),
    "image_size": st.integers(17, 400),
    "patch_size": st.integers(2, 17),
    "num_experts": st.integers(0, 9),
}


@st.composite
def configs(draw, family):
    """A config of a family: sizes drawn, then keys dropped, set to null or toggled; hidden stays a multiple."""
    heads, width = draw(st.integers(1, 12)), draw(st.integers(1, 16))
    config = {"model_type": family}
    for key, default in DEFAULTS[family].items():
        if key in HIDDEN | HEADS:
            config[key] = heads * width if key in HIDDEN else heads
            continue
        fate = draw(st.sampled_from(["drawn", "drawn", "drawn", "absent", "null"]))
        if fate == "null" and key in NULL_MEANS_DERIVED:
            config[key] = None
        elif fate != "absent":
            if isinstance(default, bool):
                config[key] = draw(st.booleans())
            else:
                drawn = st.integers(1, 12) if key in LAYERS else st.integers(1, 300)
                config[key] = draw(SMALL.get(key, drawn))
    return config


@pytest.mark.parametrize("family", FORMS)
def test_total_is_the_closed_form(family):
    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(configs(family))
    def hold(config):
        assert architecture(config).layout.num_params == FORMS[family](read(config))

    hold()


@pytest.mark.parametrize("family", FORMS)
def test_empty_config_is_the_class_default(family):
    assert architecture({"model_type": family}).layout.num_params == FORMS[family](
        read({"model_type": family})
    )


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    configs("gemma3_text"),
    st.booleans(),
    st.integers(1, 9),
    st.integers(1, 40),
    st.integers(1, 9),
    st.integers(2, 16),
)
def test_gemma3_is_text_plus_tower_plus_projector(text, tied, width, iv, layers, patch):
    e, side = 2 * width, 48
    vision = {
        "hidden_size": e, "intermediate_size": iv, "num_hidden_layers": layers, "num_attention_heads": 2,
        "image_size": side, "patch_size": patch, "vision_use_head": False,
    }  # fmt: skip
    total = architecture(
        {"model_type": "gemma3", "text_config": text, "vision_config": vision, "tie_word_embeddings": tied}
    ).layout.num_params
    s = read({**text, "tie_word_embeddings": tied})  # the outer flag counts, the inner one does not
    n = (side // patch) ** 2
    siglip = (3 * patch**2 + 1) * e + n * e + layers * (4 * e * e + 2 * e * iv + 9 * e + iv) + 2 * e
    assert total == gemma3_text(s) + siglip + e * s.hidden_size + e


@settings(max_examples=40, deadline=None, derandomize=True)
@given(configs("deepseek_v2"))
def test_active_parameters_leave_out_the_experts_not_chosen(config):
    s = read({**config, "num_experts_per_tok": 1, "n_routed_experts": 5})
    counts = count_params(architecture({**config, "num_experts_per_tok": 1, "n_routed_experts": 5}))
    expert = 3 * s.hidden_size * s.moe_intermediate_size
    moe_layers = s.num_hidden_layers - min(s.first_k_dense_replace, s.num_hidden_layers)
    assert counts.num_active_params == counts.num_params - moe_layers * 4 * expert
    assert counts.num_active_params_excl_input_embedding == counts.num_active_params - s.V * s.hidden_size


QUIRKS = [
    # null and absent differ where the class default is a number
    ({"model_type": "mistral", "num_key_value_heads": None}, "num_key_value_heads", 32),
    ({"model_type": "mistral"}, "num_key_value_heads", 8),
    ({"model_type": "qwen3", "head_dim": None}, "head_dim", 4096 // 32),
    ({"model_type": "gpt_oss", "head_dim": None}, "head_dim", 2880 // 64),
    # what a class does not read changes nothing
    (
        {"model_type": "phi3", "mlp_bias": True, "lm_head_bias": True, "attention_bias": True},
        "mlp_bias",
        False,
    ),
    ({"model_type": "bloom", "n_inner": 7}, "n_inner", None),
    ({"model_type": "mpt", "expansion_ratio": 2, "attn_config": {"qk_ln": True}}, "expansion_ratio", None),
    ({"model_type": "falcon", "num_kv_heads": 8}, "num_kv_heads", None),
    (
        {"model_type": "deepseek_v3", "num_nextn_predict_layers": 1, "moe_layer_freq": 2},
        "moe_layer_freq",
        None,
    ),
    # other spellings
    ({"model_type": "gpt2", "hidden_size": 24, "num_attention_heads": 2}, "n_embd", 24),
    ({"model_type": "bloom", "n_embed": 24, "num_attention_heads": 2}, "hidden_size", 24),
    ({"model_type": "falcon", "n_embed": 142}, "hidden_size", 142),
    ({"model_type": "mixtral", "num_experts": 3}, "num_local_experts", 3),
    ({"model_type": "qwen3_moe", "num_local_experts": 3}, "num_experts", 3),
]


@pytest.mark.parametrize(("config", "key", "meaning"), QUIRKS)
def test_quirks(config, key, meaning):
    family = config["model_type"]
    plain = {k: v for k, v in config.items() if k in DEFAULTS[family] or k == "model_type"}
    expected = FORMS[family](read({**plain, key: meaning}))
    assert architecture(config).layout.num_params == expected


def test_labels_come_from_id2label():
    s = read({"model_type": "vit"})
    assert architecture(
        {"model_type": "vit", "id2label": {"0": "a", "1": "b", "2": "c"}}
    ).layout.num_params == vit(s, 3)
    assert architecture({"model_type": "vit", "num_labels": 10}).layout.num_params == vit(s, 10)


def test_bert_model_has_a_pooler_and_no_head():
    s = read({"model_type": "bert"})
    h, i = s.hidden_size, s.intermediate_size
    layers = s.num_hidden_layers * (4 * h * h + 2 * h * i + 9 * h + i)
    total = s.V * h + (s.max_position_embeddings + s.type_vocab_size + 2) * h + layers + h * h + h
    assert (
        architecture({"model_type": "bert", "architectures": ["BertModel"]}).layout.num_params
        == total
        == 109_482_240
    )
