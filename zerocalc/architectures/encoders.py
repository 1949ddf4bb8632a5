"""Text encoders: BERT, and T5 with its decoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocalc.architectures.assemble import finish, gelu_recipe, sizes
from zerocalc.architectures.blocks import (
    Heads,
    Tensors,
    Units,
    embedding,
    linear,
    mlp,
    norm,
    parameter,
    positions,
    prefixed,
    single,
    stack,
)
from zerocalc.layout import Architecture, Buffer, Layout, Tie

if TYPE_CHECKING:
    from zerocalc.architectures.keys import Keys


def bert(keys: Keys) -> Architecture:
    """Describe BertForMaskedLM, or BertModel with its pooler where `architectures` names that one."""
    a, vocab, layers = Heads.full(keys), keys.size("vocab_size"), keys.layers()
    h, ffn, rows = a.hidden, keys.size("intermediate_size"), keys.size("max_position_embeddings")
    bare = keys.items("architectures", str) == ["BertModel"]
    root = "" if bare else "bert."
    embed = (
        *embedding("word_embeddings", vocab, h),
        *positions("position_embeddings", rows, h),
        *parameter("token_type_embeddings.weight", keys.size("type_vocab_size"), h),
        *norm("LayerNorm", h, bias=True),
    )
    layer = (
        *_bert_attention("attention", h),
        *(_bert_attention("crossattention", h) if keys.flag("add_cross_attention") else ()),
        *mlp("intermediate.dense", "output.dense", h, ffn),
        *norm("output.LayerNorm", h, bias=True),
    )
    pooler = single(linear("pooler.dense", h, h, bias=True))
    head, ties = (pooler, ()) if bare else _masked_lm_head(keys, vocab, h)
    layout = Layout(
        units=(
            *single(prefixed(f"{root}embeddings", embed)),
            *stack(f"{root}encoder.layer", "BertLayer", (layer, layers)),
            *head,
        ),
        ties=ties,
        buffers=tuple(
            Buffer(f"{root}embeddings.{name}", (1, rows), "int64")
            for name in ("position_ids", "token_type_ids")
        ),
    )
    dimensions = sizes(
        keys, gelu_recipe(keys.text("hidden_act")), a, ffn, vocab, layers,
        dropouts=("hidden_dropout_prob", "attention_probs_dropout_prob"), has_position_table=True,
    )  # fmt: skip
    return finish(keys, layout, dimensions, ("activations of bert as of a decoder of the same sizes",))


def _masked_lm_head(keys: Keys, vocab: int, hidden: int) -> tuple[Units, tuple[Tie, ...]]:
    """Describe the prediction head; a tied decoder shares the word embedding and the predictions' bias."""
    head = (
        *parameter("bias", vocab, kind="bias", tp_axis=0),
        *linear("transform.dense", hidden, hidden, bias=True),
        *norm("transform.LayerNorm", hidden, bias=True),
    )
    decoder = linear("decoder", vocab, hidden, bias=True, split="column", kind="head")
    if not keys.flag("tie_word_embeddings"):
        return single(prefixed("cls.predictions", (*head, *decoder))), ()
    targets = ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias")
    ties = tuple(Tie(f"cls.predictions.{own.name}", to) for own, to in zip(decoder, targets, strict=True))
    return single(prefixed("cls.predictions", head)), ties


def _bert_attention(name: str, hidden: int) -> Tensors:
    """Describe one attention with its output projection and norm."""
    return (
        *linear(f"{name}.self.query", hidden, hidden, bias=True, split="column"),
        *linear(f"{name}.self.key", hidden, hidden, bias=True, split="column"),
        *linear(f"{name}.self.value", hidden, hidden, bias=True, split="column"),
        *linear(f"{name}.output.dense", hidden, hidden, bias=True, split="row"),
        *norm(f"{name}.output.LayerNorm", hidden, bias=True),
    )


def t5(keys: Keys) -> Architecture:
    """Describe T5ForConditionalGeneration: two stacks; the first block of each holds the relative bias table.

    A file that says the head is untied (v1.1, flan) has one of its own, as the published checkpoints do. A missing
    num_decoder_layers is num_layers under that very spelling, as the class reads it.
    """
    h, vocab, tied = keys.size("d_model"), keys.size("vocab_size"), keys.flag("tie_word_embeddings")
    decoder_layers = keys.optional_size("num_decoder_layers")
    if decoder_layers is None:
        decoder_layers = keys.layers("num_layers", aliases=False)
    shared = ("encoder.embed_tokens", "decoder.embed_tokens", *(("lm_head",) if tied else ()))
    layout = Layout(
        units=(
            *single(embedding("shared", vocab, h)),
            *_t5_stack(keys, "encoder", keys.layers("num_layers")),
            *_t5_stack(keys, "decoder", decoder_layers),
            *single(() if tied else linear("lm_head", vocab, h, split="column", kind="head")),
        ),
        ties=tuple(Tie(f"{name}.weight", "shared.weight") for name in shared),
    )
    untied = (
        "the head counts on its own: checkpoints that say so hold one; transformers 5 ties a freshly built T5"
    )
    notes = ("activations of encoder-decoders are not modelled", *(() if tied else (untied,)))
    return finish(keys, layout, None, notes)


def _t5_stack(keys: Keys, side: str, layers: int) -> Units:
    """Describe one stack and its final norm."""
    first = _t5_block(keys, side, has_table=True)
    return (
        *stack(f"{side}.block", "T5Block", (first, 1), (_t5_block(keys, side, has_table=False), layers - 1)),
        *single(norm(f"{side}.final_layer_norm", keys.size("d_model"))),
    )


def _t5_block(keys: Keys, side: str, *, has_table: bool) -> Tensors:
    """Describe one block: self-attention, cross-attention in the decoder, feed-forward, each with its norm."""
    h, ffn = keys.size("d_model"), keys.size("d_ff")
    gated = keys.text("feed_forward_proj").startswith("gated")
    cross = (
        *_t5_attention(keys, "layer.1.EncDecAttention", has_table=False),
        *norm("layer.1.layer_norm", h),
    )
    last = "layer.2" if side == "decoder" else "layer.1"
    up = ("wi_0", "wi_1") if gated else ("wi",)
    return (
        *_t5_attention(keys, "layer.0.SelfAttention", has_table=has_table),
        *norm("layer.0.layer_norm", h),
        *(cross if side == "decoder" else ()),
        *(
            tensor
            for name in up
            for tensor in linear(f"{last}.DenseReluDense.{name}", ffn, h, split="column")
        ),
        *linear(f"{last}.DenseReluDense.wo", h, ffn, split="row"),
        *norm(f"{last}.layer_norm", h),
    )


def _t5_attention(keys: Keys, name: str, *, has_table: bool) -> Tensors:
    """Describe one attention, with the table of relative positions in the first block only."""
    h, heads, buckets = (
        keys.size("d_model"),
        keys.size("num_heads"),
        keys.size("relative_attention_num_buckets"),
    )
    width = heads * keys.size("d_kv")
    return (
        *linear(f"{name}.q", width, h, split="column"),
        *linear(f"{name}.k", width, h, split="column"),
        *linear(f"{name}.v", width, h, split="column"),
        *linear(f"{name}.o", h, width, split="row"),
        *(positions(f"{name}.relative_attention_bias", buckets, heads) if has_table else ()),
    )
