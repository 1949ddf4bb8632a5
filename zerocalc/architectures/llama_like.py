"""Decoders of the Llama kin: RMSNorm, rotary positions, grouped-query attention, gated MLP, no biases by default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from zerocalc.architectures.assemble import Routing, causal_lm, sizes
from zerocalc.architectures.blocks import (
    Heads,
    Tensors,
    attention,
    embedding,
    gated_mlp,
    linear,
    norm,
    rotary,
    stack,
)
from zerocalc.layout import Architecture, Buffer
from zerocalc.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from zerocalc.architectures.keys import Keys

PRE_NORMS = ("input_layernorm", "post_attention_layernorm")
POST_NORMS = ("post_attention_layernorm", "post_feedforward_layernorm")
SANDWICH_NORMS = (*PRE_NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")


@dataclass(eq=False, repr=False)
class Row(Record):
    """What sets one family of the kin apart from the others."""

    layer_class: str
    norms: tuple[str, ...] = PRE_NORMS
    attention_bias: bool = True
    """Whether the class reads `attention_bias`, which then covers all four projections."""
    qkv_bias: bool = False
    """Biases that no key controls."""
    mlp_bias: bool = False
    """Whether the class reads `mlp_bias`."""
    qk_norm: str = ""
    """Norms of queries and keys: over each `head`, or over the `full` width."""
    even_heads: bool = False
    """Whether the class refuses a hidden size that its heads do not divide, even with its own head_dim."""
    embed_scale: bool = False
    """Whether the embedding keeps its scale as a buffer."""


ROWS = {
    "llama": Row("LlamaDecoderLayer", mlp_bias=True, even_heads=True),
    "mistral": Row("MistralDecoderLayer", attention_bias=False),
    "mixtral": Row("MixtralDecoderLayer", attention_bias=False),
    "qwen2": Row("Qwen2DecoderLayer", attention_bias=False, qkv_bias=True),
    "qwen3": Row("Qwen3DecoderLayer", qk_norm="head"),
    "qwen3_moe": Row("Qwen3MoeDecoderLayer", qk_norm="head"),
    "gemma": Row("GemmaDecoderLayer", embed_scale=True),
    "gemma2": Row("Gemma2DecoderLayer", norms=SANDWICH_NORMS, even_heads=True, embed_scale=True),
    "gemma3_text": Row(
        "Gemma3DecoderLayer", norms=SANDWICH_NORMS, qk_norm="head", even_heads=True, embed_scale=True
    ),
    "olmo2": Row("Olmo2DecoderLayer", norms=POST_NORMS, qk_norm="full"),
}


def llama_like(keys: Keys, *, root: str = "model") -> Architecture:
    """Describe a dense family of the kin: every layer is attention, gated MLP, norms."""
    row, a = ROWS[keys.family], read_heads(keys)
    ffn, layers = keys.size("intermediate_size"), keys.layers()
    mlp = gated_mlp("mlp", a.hidden, ffn, bias=row.mlp_bias and keys.flag("mlp_bias"))
    return decoder(keys, a, ((block(keys, a, mlp), layers),), ffn=ffn, layers=layers, root=root)


def phi3(keys: Keys) -> Architecture:
    """Describe Phi-3 and Phi-4: query, key and value in one matrix, gate and up in another."""
    a, ffn, layers = Heads.read(keys), keys.size("intermediate_size"), keys.layers()
    layer = (
        *linear("self_attn.o_proj", a.hidden, a.width, split="row"),
        *linear("self_attn.qkv_proj", a.width + 2 * a.kv_width, a.hidden, split="column"),
        *linear("mlp.gate_up_proj", 2 * ffn, a.hidden, split="column"),
        *linear("mlp.down_proj", a.hidden, ffn, split="row"),
        *norm("input_layernorm", a.hidden),
        *norm("post_attention_layernorm", a.hidden),
    )
    tables = rotary("model.rotary_emb", int(a.dim * keys.rotary_fraction("partial_rotary_factor")))
    return decoder(
        keys, a, ((layer, layers),), ffn=ffn, layers=layers, layer_class="Phi3DecoderLayer", buffers=tables
    )


def read_heads(keys: Keys) -> Heads:
    """Read the heads, refusing what the family's own class refuses."""
    return Heads.read(keys, even=ROWS[keys.family].even_heads)


def block(keys: Keys, a: Heads, mlp: Tensors) -> Tensors:
    """Describe one layer around a given MLP."""
    row = ROWS[keys.family]
    bias = row.attention_bias and keys.flag("attention_bias")
    q_width, k_width = (a.width, a.kv_width) if row.qk_norm == "full" else (a.dim, a.dim)
    qk_norms = (*norm("self_attn.q_norm", q_width), *norm("self_attn.k_norm", k_width))
    return (
        *attention(a, qkv_bias=bias or row.qkv_bias, out_bias=bias),
        *(qk_norms if row.qk_norm else ()),
        *mlp,
        *(tensor for name in row.norms for tensor in norm(name, a.hidden)),
    )


def decoder(
    keys: Keys,
    a: Heads,
    runs: tuple[tuple[Tensors, int], ...],
    *,
    ffn: int,
    layers: int,
    root: str = "model",
    layer_class: str | None = None,
    buffers: tuple[Buffer, ...] | None = None,
    routing: Routing | None = None,
    assumptions: tuple[str, ...] = (),
) -> Architecture:
    """Assemble runs of layers into `embed_tokens`, `layers` and `norm` under `root`, and the head."""
    vocab = keys.size("vocab_size")
    tables = _BUFFERS.get(keys.family, _one_table)(keys, a, root) if buffers is None else buffers
    dimensions = sizes(keys, "llama", a, ffn, vocab, layers, dropouts=("attention_dropout",), gated_mlp=True)
    return causal_lm(
        keys,
        embed=embedding(f"{root}.embed_tokens", vocab, a.hidden),
        layers=stack(f"{root}.layers", layer_class or ROWS[keys.family].layer_class, *runs),
        final_norm=norm(f"{root}.norm", a.hidden),
        dimensions=routing.within(dimensions) if routing else dimensions,
        buffers=tables,
        assumptions=assumptions,
    )


def _one_table(keys: Keys, a: Heads, root: str) -> tuple[Buffer, ...]:
    """Describe the buffers of most of the kin: one rotary table, and Gemma's embedding scale."""
    row = ROWS.get(keys.family)
    scale = (Buffer(f"{root}.embed_tokens.embed_scale", ()),) if row is not None and row.embed_scale else ()
    return (*scale, *rotary(f"{root}.rotary_emb", a.dim))


def _table_per_layer_type(keys: Keys, a: Heads, root: str) -> tuple[Buffer, ...]:
    """Describe Gemma 3's buffers: one rotary table for full attention and one for the sliding window."""
    period, layers = keys.size("sliding_window_pattern"), keys.layers()
    types = set(keys.items("layer_types", str))
    if not types:
        types = {"full_attention"} if period == 1 else {"sliding_attention"}
        types |= {"full_attention"} if layers >= period else set()
    tables = (table for kind in sorted(types) for table in rotary(f"{root}.rotary_emb", a.dim, f"{kind}_"))
    return (Buffer(f"{root}.embed_tokens.embed_scale", ()), *tables)


_BUFFERS: dict[str, Callable[[Keys, Heads, str], tuple[Buffer, ...]]] = {"gemma3_text": _table_per_layer_type}
