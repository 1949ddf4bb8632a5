"""Decoders of the GPT kin: LayerNorm and a plain two-matrix MLP, mostly with biases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocalc.architectures.assemble import causal_lm, gelu_recipe, sizes
from zerocalc.architectures.blocks import (
    Heads,
    Tensors,
    attention,
    conv1d,
    embedding,
    linear,
    mlp,
    norm,
    positions,
    prefixed,
    rotary,
    stack,
)
from zerocalc.layout import Architecture, Buffer

if TYPE_CHECKING:
    from zerocalc.architectures.keys import Keys


def gpt2(keys: Keys) -> Architecture:
    """Describe GPT-2: Conv1D layers, learned positions; cross-attention only when the file asks for it."""
    a, vocab, layers = Heads.full(keys, "n_embd", "n_head"), keys.size("vocab_size"), keys.layers("n_layer")
    h, ffn = a.hidden, keys.size_or("n_inner", 4 * a.hidden)
    cross = (
        *conv1d("crossattention.c_attn", 2 * h, h, split="column"),
        *conv1d("crossattention.q_attn", h, h, split="column"),
        *conv1d("crossattention.c_proj", h, h, split="row"),
        *norm("ln_cross_attn", h, bias=True),
    )
    layer = (
        *norm("ln_1", h, bias=True),
        *conv1d("attn.c_attn", 3 * h, h, split="column"),
        *conv1d("attn.c_proj", h, h, split="row"),
        *norm("ln_2", h, bias=True),
        *(cross if keys.flag("add_cross_attention") else ()),
        *conv1d("mlp.c_fc", ffn, h, split="column"),
        *conv1d("mlp.c_proj", h, ffn, split="row"),
    )
    wte, wpe = (
        embedding("transformer.wte", vocab, h),
        positions("transformer.wpe", keys.size("n_positions"), h),
    )
    recipe = gelu_recipe(keys.text("activation_function"))
    return causal_lm(
        keys,
        embed=(*wte, *wpe),
        layers=stack("transformer.h", "GPT2Block", (layer, layers)),
        final_norm=norm("transformer.ln_f", h, bias=True),
        dimensions=sizes(
            keys, recipe, a, ffn, vocab, layers,
            dropouts=("resid_pdrop", "attn_pdrop", "embd_pdrop"), has_position_table=True,
        ),
    )  # fmt: skip


def gptj(keys: Keys) -> Architecture:
    """Describe GPT-J: one norm per layer, no attention biases, a bias on the head even when it is tied."""
    a, vocab, layers = Heads.full(keys, "n_embd", "n_head"), keys.size("vocab_size"), keys.layers("n_layer")
    h, ffn = a.hidden, keys.size_or("n_inner", 4 * a.hidden)
    layer = (
        *norm("ln_1", h, bias=True),
        *attention(a, qkv_bias=False, out_bias=False, name="attn", order="kvq", out="out_proj"),
        *mlp("mlp.fc_in", "mlp.fc_out", h, ffn),
    )
    rotated = keys.optional_size("rotary_dim", minimum=0) or h
    table = Buffer(
        "transformer.rotary_emb.embed_positions", (keys.size("n_positions"), rotated + rotated % 2)
    )
    recipe = gelu_recipe(keys.text("activation_function"))
    return causal_lm(
        keys,
        embed=embedding("transformer.wte", vocab, h),
        layers=stack("transformer.h", "GPTJBlock", (layer, layers)),
        final_norm=norm("transformer.ln_f", h, bias=True),
        head_bias=True,
        buffers=(table,),
        dimensions=sizes(
            keys, recipe, a, ffn, vocab, layers, dropouts=("resid_pdrop", "attn_pdrop", "embd_pdrop")
        ),
    )


def gpt_neox(keys: Keys) -> Architecture:
    """Describe GPT-NeoX and Pythia: fused query-key-value, rotary positions on part of each head."""
    a, vocab, layers = Heads.full(keys), keys.size("vocab_size"), keys.layers()
    h, ffn, bias = a.hidden, keys.size("intermediate_size"), keys.flag("attention_bias")
    layer = (
        *norm("input_layernorm", h, bias=True),
        *norm("post_attention_layernorm", h, bias=True),
        *linear("attention.query_key_value", 3 * h, h, bias=bias, split="column"),
        *linear("attention.dense", h, h, bias=bias, split="row"),
        *mlp("mlp.dense_h_to_4h", "mlp.dense_4h_to_h", h, ffn),
    )
    recipe = gelu_recipe(keys.text("hidden_act"))
    return causal_lm(
        keys,
        embed=embedding("gpt_neox.embed_in", vocab, h),
        layers=stack("gpt_neox.layers", "GPTNeoXLayer", (layer, layers)),
        final_norm=norm("gpt_neox.final_layer_norm", h, bias=True),
        buffers=rotary(
            "gpt_neox.rotary_emb", int(keys.size_or("head_dim", a.dim) * keys.rotary_fraction("rotary_pct"))
        ),
        dimensions=sizes(
            keys, recipe, a, ffn, vocab, layers, dropouts=("hidden_dropout", "attention_dropout")
        ),
    )


def opt(keys: Keys) -> Architecture:
    """Describe OPT: two extra position rows, and projections where the word embedding is narrower."""
    a, vocab, layers = Heads.full(keys), keys.size("vocab_size"), keys.layers()
    h, ffn, word = a.hidden, keys.size("ffn_dim"), keys.size_or("word_embed_proj_dim", a.hidden)
    bias, affine = keys.flag("enable_bias"), keys.flag("layer_norm_elementwise_affine")
    last_norm = keys.flag("do_layer_norm_before") and not keys.flag("_remove_final_layer_norm")
    layer = (
        *attention(a, qkv_bias=bias, out_bias=bias, order="kvq", out="out_proj"),
        *(norm("self_attn_layer_norm", h, bias=True) if affine else ()),
        *mlp("fc1", "fc2", h, ffn, bias=bias),
        *(norm("final_layer_norm", h, bias=True) if affine else ()),
    )
    embed = (
        *embedding("embed_tokens", vocab, word),
        *positions("embed_positions", keys.size("max_position_embeddings") + 2, h),
        *((*linear("project_out", word, h), *linear("project_in", h, word)) if word != h else ()),
        *(norm("final_layer_norm", h, bias=True) if last_norm and affine else ()),
    )
    return causal_lm(
        keys,
        embed=prefixed("model.decoder", embed),
        layers=stack("model.decoder.layers", "OPTDecoderLayer", (layer, layers)),
        final_norm=(),
        dimensions=sizes(
            keys, gelu_recipe(keys.text("activation_function")), a, ffn, vocab, layers,
            dropouts=("dropout", "attention_dropout"), has_position_table=True,
        ),
    )  # fmt: skip


def bloom(keys: Keys) -> Architecture:
    """Describe BLOOM: ALiBi, a norm after the embedding, an MLP of four times the hidden size whatever n_inner."""
    a, vocab, layers = (
        Heads.full(keys, "hidden_size", "n_head"),
        keys.size("vocab_size"),
        keys.layers("n_layer"),
    )
    h, ffn = a.hidden, 4 * a.hidden
    layer = (
        *norm("input_layernorm", h, bias=True),
        *linear("self_attention.query_key_value", 3 * h, h, bias=True, split="column"),
        *linear("self_attention.dense", h, h, bias=True, split="row"),
        *norm("post_attention_layernorm", h, bias=True),
        *mlp("mlp.dense_h_to_4h", "mlp.dense_4h_to_h", h, ffn),
    )
    embed = (
        *embedding("transformer.word_embeddings", vocab, h),
        *norm("transformer.word_embeddings_layernorm", h, bias=True),
    )
    return causal_lm(
        keys,
        embed=embed,
        layers=stack("transformer.h", "BloomBlock", (layer, layers)),
        final_norm=norm("transformer.ln_f", h, bias=True),
        dimensions=sizes(
            keys, "gpt", a, ffn, vocab, layers, dropouts=("hidden_dropout", "attention_dropout")
        ),
    )


def falcon(keys: Keys) -> Architecture:
    """Describe Falcon: multi-query or grouped attention, parallel to the MLP unless told otherwise."""
    a, vocab, layers = _falcon_heads(keys), keys.size("vocab_size"), keys.layers()
    h, bias = a.hidden, keys.flag("bias")
    ffn = keys.size_or("ffn_hidden_size", 4 * h)
    layer = (
        *linear("self_attention.query_key_value", h + 2 * a.kv_width, h, bias=bias, split="column"),
        *linear("self_attention.dense", h, h, bias=bias, split="row"),
        *mlp("mlp.dense_h_to_4h", "mlp.dense_4h_to_h", h, ffn, bias=bias),
        *_falcon_norms(keys, h),
    )
    recipe = gelu_recipe(keys.text("activation"))
    return causal_lm(
        keys,
        embed=embedding("transformer.word_embeddings", vocab, h),
        layers=stack("transformer.h", "FalconDecoderLayer", (layer, layers)),
        final_norm=norm("transformer.ln_f", h, bias=True),
        buffers=rotary("transformer.rotary_emb", a.dim),
        dimensions=sizes(
            keys, recipe, a, ffn, vocab, layers, dropouts=("hidden_dropout", "attention_dropout")
        ),
    )


def _falcon_heads(keys: Keys) -> Heads:
    """Read the heads; num_kv_heads counts only in the new decoder, multi-query has one whatever the file says."""
    even = Heads.full(keys)
    if keys.flag("new_decoder_architecture"):
        num_kv = keys.size_or("num_kv_heads", even.num)
    else:
        num_kv = 1 if keys.flag("multi_query") else even.num
    return Heads(even.hidden, even.num, num_kv, even.dim)


def _falcon_norms(keys: Keys, hidden: int) -> Tensors:
    """Describe one norm, or two: one after the other, or side by side in the parallel block."""
    parallel = keys.size_or("num_ln_in_parallel_attn", 2 if keys.flag("new_decoder_architecture") else 1)
    names: tuple[str, ...] = ("input_layernorm",)
    if not keys.flag("parallel_attn"):
        names = ("post_attention_layernorm", "input_layernorm")
    elif parallel == 2:
        names = ("ln_attn", "ln_mlp")
    return tuple(tensor for name in names for tensor in norm(name, hidden, bias=True))


def mpt(keys: Keys) -> Architecture:
    """Describe MPT: no biases at all, ALiBi, an MLP of four times the width whatever expansion_ratio."""
    a, vocab, layers = (
        Heads.full(keys, "d_model", "n_heads", even=False),
        keys.size("vocab_size"),
        keys.layers("n_layers"),
    )
    h, ffn = a.hidden, 4 * a.hidden
    layer = (
        *norm("norm_1", h),
        *linear("attn.Wqkv", 3 * h, h, split="column"),
        *linear("attn.out_proj", h, h, split="row"),
        *norm("norm_2", h),
        *mlp("ffn.up_proj", "ffn.down_proj", h, ffn, bias=False),
    )
    return causal_lm(
        keys,
        embed=embedding("transformer.wte", vocab, h),
        layers=stack("transformer.blocks", "MptBlock", (layer, layers)),
        final_norm=norm("transformer.norm_f", h),
        dimensions=sizes(keys, "gpt", a, ffn, vocab, layers, dropouts=("resid_pdrop",)),
    )


def phi(keys: Keys) -> Architecture:
    """Describe Phi-1 and Phi-2: biases everywhere, one norm per layer, a bias on the head."""
    a, vocab, layers = Heads.read(keys), keys.size("vocab_size"), keys.layers()
    h, ffn, per_head = a.hidden, keys.size("intermediate_size"), a.hidden // a.num
    qk_norms = (
        *norm("self_attn.q_layernorm", per_head, bias=True),
        *norm("self_attn.k_layernorm", per_head, bias=True),
    )
    layer = (
        *attention(a, qkv_bias=True, out_bias=True, out="dense"),
        *(qk_norms if keys.flag("qk_layernorm") else ()),
        *mlp("mlp.fc1", "mlp.fc2", h, ffn),
        *norm("input_layernorm", h, bias=True),
    )
    recipe = gelu_recipe(keys.text("hidden_act"))
    return causal_lm(
        keys,
        embed=embedding("model.embed_tokens", vocab, h),
        layers=stack("model.layers", "PhiDecoderLayer", (layer, layers)),
        final_norm=norm("model.final_layernorm", h, bias=True),
        head_bias=True,
        buffers=rotary("model.rotary_emb", int(a.dim * keys.rotary_fraction("partial_rotary_factor"))),
        dimensions=sizes(
            keys, recipe, a, ffn, vocab, layers, dropouts=("resid_pdrop", "attention_dropout", "embd_pdrop")
        ),
    )


def starcoder2(keys: Keys) -> Architecture:
    """Describe StarCoder2: grouped-query attention and rotary positions around a plain MLP."""
    a, vocab, layers = Heads.read(keys), keys.size("vocab_size"), keys.layers()
    h, ffn, bias = a.hidden, keys.size("intermediate_size"), keys.flag("use_bias")
    layer = (
        *attention(a, qkv_bias=bias, out_bias=bias),
        *mlp("mlp.c_fc", "mlp.c_proj", h, ffn, bias=bias),
        *norm("input_layernorm", h, bias=True),
        *norm("post_attention_layernorm", h, bias=True),
    )
    recipe = gelu_recipe(keys.text("hidden_act"))
    return causal_lm(
        keys,
        embed=embedding("model.embed_tokens", vocab, h),
        layers=stack("model.layers", "Starcoder2DecoderLayer", (layer, layers)),
        final_norm=norm("model.norm", h, bias=True),
        buffers=rotary("model.rotary_emb", a.dim),
        dimensions=sizes(
            keys, recipe, a, ffn, vocab, layers,
            dropouts=("residual_dropout", "attention_dropout", "embedding_dropout"),
        ),
    )  # fmt: skip
