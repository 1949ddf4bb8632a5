"""Small models: a configuration that transformers builds and zerocalc reads."""

from __future__ import annotations

import json
from functools import reduce
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    import torch

_LLAMA = {
    "model_type": "llama", "hidden_size": 192, "intermediate_size": 520, "num_hidden_layers": 4, "num_attention_heads": 6,
    "num_key_value_heads": 2, "vocab_size": 5003, "tie_word_embeddings": False,
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": _LLAMA,
    "llama_tied": {**_LLAMA, "tie_word_embeddings": True, "num_key_value_heads": 6},
    # Dimensions that divide by 3 but not by 2, by 2 but not by 3, and by neither.
    "llama_odd": {
        "model_type": "llama", "hidden_size": 171, "intermediate_size": 381, "num_hidden_layers": 3,
        "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 58, "vocab_size": 3001, "tie_word_embeddings": False,
    },
    "gpt2": {
        "model_type": "gpt2", "n_embd": 144, "n_layer": 3, "n_head": 4, "vocab_size": 4001, "n_positions": 96,
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
    },
    "gpt2_untied": {
        "model_type": "gpt2", "n_embd": 130, "n_layer": 2, "n_head": 5, "vocab_size": 2999, "n_positions": 64,
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "tie_word_embeddings": False,
    },
    "mixtral": {
        "model_type": "mixtral", "hidden_size": 96, "intermediate_size": 200, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 2501, "num_local_experts": 3,
        "num_experts_per_tok": 2, "tie_word_embeddings": False,
    },
}  # fmt: skip
SEQUENCE = 16
_STACKS = {"llama": "model.layers", "mixtral": "model.layers", "gpt2": "transformer.h"}


def config_file(name: str, folder: Path) -> Path:
    """The model's `config.json`, as zerocalc reads it."""
    path = folder / f"{name}.json"
    path.write_text(json.dumps(CONFIGS[name]))
    return path


def build(name: str, dtype: str = "fp32") -> torch.nn.Module:
    """The model with random weights, the same on every rank."""
    import torch
    import transformers

    given = dict(CONFIGS[name])
    config = transformers.CONFIG_MAPPING[given.pop("model_type")](use_cache=False, **given)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config)
    return model.to(torch.bfloat16 if dtype == "bf16" else torch.float32).train()


def loss_of(model: torch.nn.Module, name: str, seed: int) -> torch.Tensor:
    """The loss of one short sequence."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, CONFIGS[name]["vocab_size"], (1, SEQUENCE), generator=generator)
    return model(input_ids=ids, labels=ids).loss


def layers_of(model: torch.nn.Module, name: str) -> list[torch.nn.Module]:
    """The repeated blocks, which fully sharded data parallel wraps one by one."""
    return list(reduce(getattr, _STACKS[CONFIGS[name]["model_type"]].split("."), model))
