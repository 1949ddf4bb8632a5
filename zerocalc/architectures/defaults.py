"""What an absent key means: the class defaults of transformers 5.24, one row per family.

A key that a family does not have a row for is not read by that family, whatever the file says. None as a default
means what null means: derived from the other keys (`head_dim`, `num_key_value_heads`) or switched off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_LLAMA = {
    "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": None, "head_dim": None, "attention_dropout": 0.0,
    "tie_word_embeddings": False,
}  # fmt: skip
_BIASED = {"attention_bias": False}
_QWEN = {**_LLAMA, "vocab_size": 151936, "intermediate_size": 22016, "num_key_value_heads": 32}
_GEMMA2 = {
    **_LLAMA, **_BIASED, "vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216,
    "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
    "tie_word_embeddings": True,
}  # fmt: skip
_DEEPSEEK = {
    "attention_bias": False, "attention_dropout": 0.0, "kv_lora_rank": 512, "q_lora_rank": 1536,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "tie_word_embeddings": False,
}  # fmt: skip
_DEEPSEEK_V3 = {
    **_DEEPSEEK, "vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61,
    "num_attention_heads": 128, "first_k_dense_replace": 3, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
}  # fmt: skip

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "gpt2": {
        "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": None,
        "activation_function": "gelu_new", "add_cross_attention": False, "resid_pdrop": 0.1, "attn_pdrop": 0.1,
        "embd_pdrop": 0.1,
        "tie_word_embeddings": True,
    },
    "gptj": {
        "vocab_size": 50400, "n_positions": 2048, "n_embd": 4096, "n_layer": 28, "n_head": 16, "n_inner": None,
        "rotary_dim": 64, "activation_function": "gelu_new", "resid_pdrop": 0.0, "attn_pdrop": 0.0,
        "embd_pdrop": 0.0, "tie_word_embeddings": False,
    },
    "gpt_neox": {
        "vocab_size": 50432, "hidden_size": 6144, "num_hidden_layers": 44, "num_attention_heads": 64,
        "intermediate_size": 24576, "attention_bias": True, "head_dim": None, "rotary_pct": 0.25, "hidden_act": "gelu",
        "hidden_dropout": 0.0, "attention_dropout": 0.0, "tie_word_embeddings": False,
    },
    "opt": {
        "vocab_size": 50272, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
        "ffn_dim": 3072, "max_position_embeddings": 2048, "word_embed_proj_dim": None, "enable_bias": True,
        "do_layer_norm_before": True, "_remove_final_layer_norm": False, "layer_norm_elementwise_affine": True,
        "activation_function": "relu", "dropout": 0.1, "attention_dropout": 0.0, "tie_word_embeddings": True,
    },
    "bloom": {
        "vocab_size": 250880, "hidden_size": 64, "n_layer": 2, "n_head": 8, "hidden_dropout": 0.0, "attention_dropout": 0.0,
        "tie_word_embeddings": True,
    },
    "falcon": {
        "vocab_size": 65024, "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71,
        "num_ln_in_parallel_attn": None, "num_kv_heads": None, "new_decoder_architecture": False,
        "multi_query": True, "parallel_attn": True, "bias": False, "ffn_hidden_size": None, "activation": "gelu",
        "hidden_dropout": 0.0, "attention_dropout": 0.0, "tie_word_embeddings": True,
    },
    "mpt": {
        "vocab_size": 50368, "d_model": 2048, "n_layers": 24, "n_heads": 16, "resid_pdrop": 0.0,
        "tie_word_embeddings": True,
    },
    "llama": {**_LLAMA, **_BIASED, "mlp_bias": False},
    "mistral": {**_LLAMA, "intermediate_size": 14336, "num_key_value_heads": 8},
    "mixtral": {
        **_LLAMA, "intermediate_size": 14336, "num_key_value_heads": 8, "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    "qwen2": _QWEN,
    "qwen3": {**_QWEN, **_BIASED, "head_dim": 128},
    "qwen3_moe": {
        **_QWEN, **_BIASED, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 24,
        "num_key_value_heads": 4, "decoder_sparse_step": 1, "moe_intermediate_size": 768, "num_experts": 128,
        "num_experts_per_tok": 8, "mlp_only_layers": None,
    },
    "gemma": {
        **_LLAMA, **_BIASED, "vocab_size": 256000, "hidden_size": 3072, "intermediate_size": 24576,
        "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 256,
        "tie_word_embeddings": True,
    },
    "gemma2": _GEMMA2,
    "gemma3_text": {**_GEMMA2, "vocab_size": 262208, "layer_types": None, "sliding_window_pattern": 6},
    "gemma3": {"text_config": None, "vision_config": None, "tie_word_embeddings": True},
    "siglip_vision_model": {
        "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
        "num_channels": 3, "image_size": 224, "patch_size": 16, "vision_use_head": True,
    },
    "phi": {
        **_LLAMA, "vocab_size": 51200, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24,
        "qk_layernorm": False, "partial_rotary_factor": 0.5, "hidden_act": "gelu_new", "resid_pdrop": 0.0, "embd_pdrop": 0.0,
    },
    "phi3": {
        **_LLAMA, "vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192,
        "partial_rotary_factor": 1.0,
    },
    "deepseek_v2": {
        **_DEEPSEEK, "vocab_size": 102400, "hidden_size": 4096, "intermediate_size": 11008,
        "num_hidden_layers": 32, "num_attention_heads": 32, "mlp_bias": False, "first_k_dense_replace": 0,
        "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": None,
        "moe_intermediate_size": 1407,
    },
    "deepseek_v3": _DEEPSEEK_V3,
    "kimi_k2": _DEEPSEEK_V3,
    "gpt_oss": {
        **_LLAMA, "vocab_size": 201088, "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 36,
        "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "num_local_experts": 128,
        "num_experts_per_tok": 4, "attention_bias": True,
    },
    "olmo2": {**_LLAMA, **_BIASED, "vocab_size": 50304},
    "starcoder2": {
        **_LLAMA, "vocab_size": 49152, "hidden_size": 3072, "intermediate_size": 12288, "num_hidden_layers": 30,
        "num_attention_heads": 24, "num_key_value_heads": 2, "use_bias": True, "hidden_act": "gelu_pytorch_tanh",
        "residual_dropout": 0.0, "embedding_dropout": 0.0, "tie_word_embeddings": True,
    },
    "bert": {
        "vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
        "intermediate_size": 3072, "max_position_embeddings": 512, "type_vocab_size": 2, "hidden_act": "gelu",
        "add_cross_attention": False, "architectures": None, "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1, "tie_word_embeddings": True,
    },
    "t5": {
        "vocab_size": 32128, "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6,
        "num_decoder_layers": None, "num_heads": 8, "relative_attention_num_buckets": 32,
        "feed_forward_proj": "relu", "tie_word_embeddings": True,
    },
    "vit": {
        "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
        "image_size": 224, "patch_size": 16, "num_channels": 3, "qkv_bias": True, "head_dim": None,
        "num_labels": None, "id2label": None,
    },
}  # fmt: skip

ALIASES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "gpt2": {
        "n_embd": ("hidden_size",), "n_layer": ("num_hidden_layers",), "n_head": ("num_attention_heads",),
        "n_positions": ("max_position_embeddings",),
    },
    "gptj": {
        "n_embd": ("hidden_size",), "n_layer": ("num_hidden_layers",), "n_head": ("num_attention_heads",),
        "n_positions": ("max_position_embeddings",),
    },
    "bloom": {
        "hidden_size": ("n_embed",), "n_layer": ("num_hidden_layers",), "n_head": ("num_attention_heads",),
    },
    "falcon": {"hidden_size": ("n_embed",)},
    "mpt": {
        "d_model": ("hidden_size",), "n_layers": ("num_hidden_layers",), "n_heads": ("num_attention_heads",),
    },
    "mixtral": {"num_local_experts": ("num_experts",)},
    "gpt_oss": {"num_local_experts": ("num_experts",)},
    "qwen3_moe": {"num_experts": ("num_local_experts",)},
    "deepseek_v2": {"n_routed_experts": ("num_experts",)},
    "deepseek_v3": {"n_routed_experts": ("num_local_experts",)},
    "kimi_k2": {"n_routed_experts": ("num_local_experts",)},
    "t5": {
        "d_model": ("hidden_size",), "d_kv": ("head_dim",), "num_layers": ("num_hidden_layers",),
        "num_heads": ("num_attention_heads",),
    },
}  # fmt: skip
"""Other spellings of a key. transformers sets them after the key itself, so a spelling that is present wins."""
