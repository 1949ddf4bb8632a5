"""Hugging Face configs to layouts of named tensors: one small description per family, every total follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from zerocalc.architectures.keys import Keys
from zerocalc.errors import SpecError, UnknownNameError, shown, unknown_name
from zerocalc.layout import Architecture

_BUILDERS: Mapping[str, str] = {
    "gpt2": "gpt_like.gpt2",
    "gptj": "gpt_like.gptj",
    "gpt_neox": "gpt_like.gpt_neox",
    "opt": "gpt_like.opt",
    "bloom": "gpt_like.bloom",
    "falcon": "gpt_like.falcon",
    "mpt": "gpt_like.mpt",
    "llama": "llama_like.llama_like",
    "mistral": "llama_like.llama_like",
    "mixtral": "moe.mixtral",
    "qwen2": "llama_like.llama_like",
    "qwen3": "llama_like.llama_like",
    "qwen3_moe": "moe.qwen3_moe",
    "gemma": "llama_like.llama_like",
    "gemma2": "llama_like.llama_like",
    "gemma3": "vision.gemma3",
    "gemma3_text": "llama_like.llama_like",
    "phi": "gpt_like.phi",
    "phi3": "llama_like.phi3",
    "deepseek_v2": "moe.deepseek",
    "deepseek_v3": "moe.deepseek",
    "kimi_k2": "moe.deepseek",
    "gpt_oss": "moe.gpt_oss",
    "olmo2": "llama_like.llama_like",
    "starcoder2": "gpt_like.starcoder2",
    "bert": "encoders.bert",
    "t5": "encoders.t5",
    "vit": "vision.vit",
}
"""The function that describes a family: its module in this package, loaded when a config needs it, and its name."""

FAMILIES = tuple(_BUILDERS)
"""The `model_type` values that are known."""

_CLASSES = {
    "gpt2": ("GPT2LMHeadModel",),
    "mpt": ("MptForCausalLM", "MPTForCausalLM"),
    "bert": ("BertForMaskedLM", "BertModel"),
    "t5": ("T5ForConditionalGeneration", "T5WithLMHeadModel"),
    "vit": ("ViTForImageClassification",),
    "gemma3": ("Gemma3ForConditionalGeneration",),
    "gemma3_text": ("Gemma3ForCausalLM",),
    "gptj": ("GPTJForCausalLM",),
    "gpt_neox": ("GPTNeoXForCausalLM",),
    "gpt_oss": ("GptOssForCausalLM",),
    "opt": ("OPTForCausalLM",),
    "deepseek_v2": ("DeepseekV2ForCausalLM",),
    "deepseek_v3": ("DeepseekV3ForCausalLM",),
    "kimi_k2": ("DeepseekV3ForCausalLM",),
    "qwen3_moe": ("Qwen3MoeForCausalLM",),
}
"""The classes counted, where capitalizing the family's name does not give them."""


def architecture(config: Mapping[str, Any], *, origin: str = "config") -> Architecture:
    """Describe the model of a config.json: every tensor by name and shape, ties, buffers, sizes for activations.

    Raises SpecError naming the key that is missing, of the wrong type or out of range, and UnknownNameError for a
    `model_type` outside FAMILIES.
    """
    if not isinstance(config, Mapping):
        raise SpecError(f"{origin}: a model's config must be an object (got {shown(config)})")
    family = _family(config, origin)
    described = _builder(family)(Keys(config, family, origin=origin))
    note = _other_class(config, family)
    if note is None:
        return described
    return Architecture(
        described.model_type, described.layout, described.dimensions, (note, *described.assumptions)
    )


def _builder(family: str) -> Callable[[Keys], Architecture]:
    module, _, name = _BUILDERS[family].partition(".")
    builder: Callable[[Keys], Architecture] = getattr(import_module(f"{__name__}.{module}"), name)
    return builder


def _family(config: Mapping[str, Any], origin: str) -> str:
    """Find the family by `model_type`, and by `architectures` where that is absent."""
    model_type = config.get("model_type")
    if model_type is None:
        named = config.get("architectures")
        for family in FAMILIES:
            if isinstance(named, list) and any(name in named for name in _classes(family)):
                return family
        raise SpecError(
            f"{origin}: model_type is missing, so it is not a model's config",
            hint=f"add model_type, one of {', '.join(FAMILIES)}",
        )
    if not isinstance(model_type, str):
        raise SpecError(f"{origin}: model_type must be text (got {shown(model_type)})")
    if model_type not in _BUILDERS:
        raise _unknown_family(model_type[:60], origin)
    return model_type


def _unknown_family(model_type: str, origin: str) -> UnknownNameError:
    """Build the error for a family that has no description, with the way that works for any model."""
    error = unknown_name("model_type", model_type, list(FAMILIES))
    return UnknownNameError(
        f"{origin}: {error.message}",
        hint=f"known: {', '.join(FAMILIES)}; any other model is read from its .safetensors file, or a folder with "
        "model.safetensors.index.json and its shards (headers only)",
    )


def _classes(family: str) -> tuple[str, ...]:
    """Name the classes whose layout a family's description gives."""
    return _CLASSES.get(family, (f"{family.capitalize()}ForCausalLM",))


def _other_class(config: Mapping[str, Any], family: str) -> str | None:
    """Say so when the config names another class, say a classifier, than the one that is counted."""
    named = config.get("architectures")
    if not isinstance(named, list) or not named or any(name in named for name in _classes(family)):
        return None
    return f"counted as {_classes(family)[0]}, though architectures says {str(named[0])[:60]}"
