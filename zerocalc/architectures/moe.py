"""Mixtures of experts: Mixtral, Qwen3-MoE, GPT-OSS and the DeepSeek kin with latent attention.

Experts are laid out as transformers 5 holds them, fused into 3-D parameters per layer.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from zerocalc.architectures.assemble import Routing
from zerocalc.architectures.blocks import (
    Heads,
    Tensors,
    attention,
    fused_experts,
    gated_mlp,
    linear,
    norm,
    parameter,
    rotary,
)
from zerocalc.architectures.llama_like import block, decoder, read_heads
from zerocalc.layout import Architecture, Buffer

if TYPE_CHECKING:
    from zerocalc.architectures.keys import Keys


def mixtral(keys: Keys) -> Architecture:
    """Describe Mixtral: every layer routes to experts of the full MLP width."""
    a, ffn, layers = read_heads(keys), keys.size("intermediate_size"), keys.layers()
    experts, chosen = keys.size("num_local_experts"), keys.size("num_experts_per_tok")
    mlp = (*_router("mlp.gate", experts, a.hidden), *fused_experts("mlp.experts", experts, a.hidden, ffn))
    routing = Routing(experts, chosen, layers, ffn)
    return decoder(keys, a, ((block(keys, a, mlp), layers),), ffn=ffn, layers=layers, routing=routing)


def qwen3_moe(keys: Keys) -> Architecture:
    """Describe Qwen3-MoE: expert layers every `decoder_sparse_step`, except those in `mlp_only_layers`."""
    a, ffn, layers = read_heads(keys), keys.size("intermediate_size"), keys.layers()
    moe_ffn, experts = keys.size("moe_intermediate_size"), keys.size("num_experts", minimum=0)
    chosen = keys.size("num_experts_per_tok")
    step, dense = keys.size("decoder_sparse_step"), set(keys.items("mlp_only_layers", int))
    mlp = (
        *fused_experts("mlp.experts", experts, a.hidden, moe_ffn),
        *_router("mlp.gate", experts, a.hidden),
    )
    kinds = {True: block(keys, a, mlp), False: block(keys, a, gated_mlp("mlp", a.hidden, ffn))}
    routed = [experts > 0 and (index + 1) % step == 0 and index not in dense for index in range(layers)]
    runs = tuple((kinds[moe], sum(1 for _ in run)) for moe, run in groupby(routed))
    routing = Routing(experts, chosen, sum(routed), moe_ffn)
    return decoder(keys, a, runs, ffn=ffn, layers=layers, routing=routing)


def gpt_oss(keys: Keys) -> Architecture:
    """Describe GPT-OSS: attention sinks, experts with biases stored [in, out], a router with a bias."""
    a, ffn, layers = Heads.read(keys), keys.size("intermediate_size"), keys.layers()
    experts, chosen = keys.size("num_local_experts"), keys.size("num_experts_per_tok")
    bias = keys.flag("attention_bias")
    layer = (
        *parameter("self_attn.sinks", a.num, tp_axis=0),
        *attention(a, qkv_bias=bias, out_bias=bias),
        *_router("mlp.router", experts, a.hidden, bias=True),
        *parameter("mlp.experts.gate_up_proj", experts, a.hidden, 2 * ffn, kind="expert", tp_axis=2),
        *parameter("mlp.experts.gate_up_proj_bias", experts, 2 * ffn, kind="expert", tp_axis=1),
        *parameter("mlp.experts.down_proj", experts, ffn, a.hidden, kind="expert", tp_axis=1),
        *parameter("mlp.experts.down_proj_bias", experts, a.hidden, kind="expert"),
        *norm("input_layernorm", a.hidden),
        *norm("post_attention_layernorm", a.hidden),
    )
    return decoder(
        keys,
        a,
        ((layer, layers),),
        ffn=ffn,
        layers=layers,
        layer_class="GptOssDecoderLayer",
        routing=Routing(experts, chosen, layers, ffn),
    )


def deepseek(keys: Keys) -> Architecture:
    """Describe DeepSeek-V2, V3 and Kimi K2: a few dense layers, then routed and shared experts.

    Multi-token-prediction layers are in the checkpoints but not in the model class.
    """
    hidden, layers, ffn = keys.size("hidden_size"), keys.layers(), keys.size("intermediate_size")
    v2 = keys.family == "deepseek_v2"
    mlp_bias = v2 and keys.flag("mlp_bias")
    moe_layers = layers - min(keys.size("first_k_dense_replace", minimum=0), layers)
    routing, notes = _deepseek_routing(keys, moe_layers)
    attn, a = _latent_attention(keys, hidden)
    norms = (*norm("input_layernorm", hidden), *norm("post_attention_layernorm", hidden))
    shared = gated_mlp("mlp.shared_experts", hidden, routing.shared_ffn, bias=mlp_bias, kind="shared_expert")
    moe = (
        *fused_experts("mlp.experts", routing.experts, hidden, routing.ffn),
        *_router("mlp.gate", routing.experts, hidden),
        *(() if keys.optional_size("n_shared_experts", minimum=0) is None else shared),
    )
    runs = (
        ((*attn, *gated_mlp("mlp", hidden, ffn, bias=mlp_bias), *norms), layers - moe_layers),
        ((*attn, *moe, *norms), moe_layers),
    )
    return decoder(
        keys,
        a,
        runs,
        ffn=ffn,
        layers=layers,
        layer_class="DeepseekV2DecoderLayer" if v2 else "DeepseekV3DecoderLayer",
        buffers=_deepseek_buffers(keys, experts=0 if v2 else routing.experts, moe_layers=moe_layers),
        routing=routing,
        assumptions=notes,
    )


def _deepseek_routing(keys: Keys, moe_layers: int) -> tuple[Routing, tuple[str, ...]]:
    """Read the sizes of the experts; V2's class leaves open how many a token visits."""
    experts, ffn = keys.size("n_routed_experts"), keys.size("moe_intermediate_size")
    chosen = keys.optional_size("num_experts_per_tok")
    shared = keys.optional_size("n_shared_experts", minimum=0) or 0
    routing = Routing(
        experts,
        chosen or experts,
        moe_layers,
        ffn,
        shared_ffn=ffn * shared,
        v_head_dim=keys.size("v_head_dim"),
    )
    note = "num_experts_per_tok is not given: all experts count as active"
    return routing, () if chosen else (note,)


def _latent_attention(keys: Keys, hidden: int) -> tuple[Tensors, Heads]:
    """Describe multi-head latent attention: keys and values from one low rank, queries from another or none."""
    if keys.family == "deepseek_v2":
        keys.share("hidden_size", "num_attention_heads", even=True)
    num, bias = keys.size("num_attention_heads"), keys.flag("attention_bias")
    nope, rope, value = keys.size("qk_nope_head_dim"), keys.size("qk_rope_head_dim"), keys.size("v_head_dim")
    kv_rank, q_rank = keys.size("kv_lora_rank"), keys.optional_size("q_lora_rank")
    width = num * (nope + rope)
    if q_rank is None:
        queries = linear("self_attn.q_proj", width, hidden, split="column")
    else:
        queries = (
            *linear("self_attn.q_a_proj", q_rank, hidden, bias=bias),
            *norm("self_attn.q_a_layernorm", q_rank),
            *linear("self_attn.q_b_proj", width, q_rank, split="column"),
        )
    tensors = (
        *queries,
        *linear("self_attn.kv_a_proj_with_mqa", kv_rank + rope, hidden, bias=bias),
        *norm("self_attn.kv_a_layernorm", kv_rank),
        *linear("self_attn.kv_b_proj", num * (nope + value), kv_rank, split="column"),
        *linear("self_attn.o_proj", hidden, num * value, bias=bias, split="row"),
    )
    return tensors, Heads(hidden, num, num, nope + rope)


def _deepseek_buffers(keys: Keys, *, experts: int, moe_layers: int) -> tuple[Buffer, ...]:
    """Describe the rotary table, and V3's router corrections: saved with the model, but not trained."""
    corrections = Buffer(
        "model.layers.*.mlp.gate.e_score_correction_bias", (experts,), persistent=True, count=moe_layers
    )
    held = (corrections,) if experts and moe_layers else ()
    return (*held, *rotary("model.rotary_emb", keys.size("qk_rope_head_dim")))


def _router(name: str, experts: int, hidden: int, *, bias: bool = False) -> Tensors:
    """Describe the router of one layer."""
    return linear(name, experts, hidden, bias=bias, kind="router")
