"""What a layer is made of, by family and by implementation: the tables' rows put in order.

A family is one `Recipe`, an implementation one `Implementation`; adding either edits no function.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from zerocalc.activations.rows import (
    ATTENTION,
    BYTE,
    ELEMENT,
    EMBEDDING,
    EVERY_SECOND_MATMUL,
    FP32,
    MASKS,
    MLPS,
    MOE,
    NORMS,
    PAPER_MASKS,
    RESIDUAL,
    ROUTERS,
    SELECTIVE,
    Attention,
    Bytes,
    Saved,
    saved_inside,
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """What one layer of a family is made of."""

    norm: Literal["rms", "rms-fp32", "gemma", "layer"]
    attention: Literal["llama", "gpt2", "gpt_neox", "phi", "phi3", "gemma2"]
    mlp: str
    post_norms: bool = False
    """Gemma 2 and 3: each half of the layer is normalised again before it is added."""
    qk_norm: Literal["no", "heads", "whole"] = "no"
    """Whether queries and keys are normalised, per head or over their whole width."""
    packed_qkv: bool = False
    logit_softcap: bool = False
    pre_norms: bool = True
    parallel: Literal["no", "two norms", "one norm"] = "no"
    """Whether attention and MLP read the same hidden states, each through its own norm or both through one."""
    position_ids: Literal["position", "index"] = "position"
    """Learned positions: one id per position, or one per token of the batch."""
    router: str = "qwen3"
    biased: bool = False
    """Whether every matrix multiplication adds a bias, which autocast copies too."""
    rotary: bool = True
    rotary_size: Bytes = RESIDUAL
    residual_dropout: bool = False


RECIPES: dict[str, Recipe] = {
    "llama": Recipe("rms", "llama", "gated"),
    "mixtral": Recipe("rms", "llama", "gated", router="mixtral"),
    "qwen3": Recipe("rms", "llama", "gated", qk_norm="heads"),
    "olmo2": Recipe(
        "rms-fp32", "llama", "gated", qk_norm="whole", pre_norms=False, post_norms=True, rotary_size=FP32
    ),
    "phi3": Recipe("rms", "phi3", "gated", packed_qkv=True),
    "gemma": Recipe("gemma", "llama", "gated"),
    "gemma2": Recipe("gemma", "gemma2", "gated", post_norms=True, logit_softcap=True),
    "gemma3": Recipe("gemma", "llama", "gated", post_norms=True, qk_norm="heads"),
    "gpt2": Recipe(
        "layer", "gpt2", "gelu_new", packed_qkv=True, rotary=False, residual_dropout=True, biased=True
    ),
    "gpt_neox": Recipe(
        "layer", "gpt_neox", "gelu", packed_qkv=True, parallel="two norms", residual_dropout=True, biased=True
    ),
    "phi": Recipe("layer", "phi", "gelu_new", parallel="one norm", residual_dropout=True, biased=True),
    "gpt": Recipe("layer", "llama", "gelu", residual_dropout=True, biased=True),
    "opt": Recipe(
        "layer", "llama", "relu", rotary=False, residual_dropout=True, position_ids="index", biased=True
    ),
}


_KIN = {"gemma3_text": "gemma3", "qwen3_moe": "qwen3"}


def recipe_of(model_type: str, fallback: str) -> str:
    """Choose the recipe measured for a family, or the general one of its kind."""
    name = _KIN.get(model_type, model_type)
    return name if name in RECIPES else fallback


class Implementation(NamedTuple):
    """Which rows of the tables apply."""

    norm: str
    mlp: str
    attention: str | None = None
    """The family of attention rows; None takes the recipe's."""
    masks: tuple[Saved, ...] = MASKS
    embedding: tuple[Saved, ...] = EMBEDDING
    counts_indices: bool = True
    """Whether ids, labels, tables and casts are counted: the paper leaves them out."""


IMPLEMENTATIONS: dict[str, Implementation] = {
    "eager": Implementation("eager", "eager"),
    "fused": Implementation("fused", "eager"),
    "fused-mlp": Implementation("fused", "fused"),
    "megatron": Implementation("fused", "fused", "megatron"),
    "korthikanti": Implementation(
        "korthikanti",
        "korthikanti",
        "korthikanti",
        PAPER_MASKS,
        embedding=(Saved("embedding dropout mask", "hidden", BYTE),),
        counts_indices=False,
    ),
}


SELECTIVE_POLICIES = ("attention", "matmuls", "layers")
"""What selective checkpointing computes again: the core of attention (Korthikanti et al., Megatron), all but every
second matrix multiplication, or every Nth layer whole (torchtitan)."""


def _named(prefix: str, rows: tuple[Saved, ...]) -> tuple[Saved, ...]:
    return tuple(row._replace(name=f"{prefix} {row.name}") for row in rows)


def _consumed(name: str, consumers: int) -> Saved:
    """Describe the input of `consumers` matrix multiplications: one tensor, but autocast casts it for each of them."""
    return Saved(name, "hidden", ELEMENT._replace(autocast=ELEMENT.autocast * consumers))


def _qk_norms(recipe: Recipe, norm: tuple[Saved, ...]) -> tuple[Saved, ...]:
    """Apply a norm's rows to the queries and the keys: Qwen 3 and Gemma 3 to every head, OLMo 2 to the whole."""
    whole = recipe.qk_norm == "whole"
    parts = (("query", "token" if whole else "heads"), ("key", "token" if whole else "kv_heads"))
    return tuple(
        row._replace(
            name=f"{name} norm {row.name}", width={"hidden": name, "token": each, "vector": "head"}[row.width]
        )
        for name, each in parts * (recipe.qk_norm != "no")
        for row in norm
    )


def _post_norm(name: str, recipe: Recipe, how: Implementation) -> tuple[Saved, ...]:
    return _named(name, NORMS[recipe.norm, how.norm]) if recipe.post_norms else ()


def _residual_mask(index: int, recipe: Recipe, how: Implementation) -> tuple[Saved, ...]:
    always = how.masks[index].when == "always"
    return how.masks[index : index + 1] if recipe.residual_dropout or always else ()


def _mlp_input(recipe: Recipe, norm: tuple[Saved, ...]) -> tuple[Saved, ...]:
    read = _consumed("MLP input", 2 if recipe.mlp == "gated" else 1)
    if recipe.parallel == "one norm":
        return ()
    rows = norm[1:] if recipe.parallel == "two norms" else norm
    return (*_named("MLP norm", rows), read) if recipe.pre_norms else (read,)


def attention_core(recipe: Recipe, how: Implementation, attention: Attention) -> tuple[Saved, ...]:
    """List what the attention kernel keeps, from queries to its output."""
    return ATTENTION[how.attention or recipe.attention, attention]


def layer_rows(
    recipe: Recipe, how: Implementation, kind: str, core: tuple[Saved, ...], *, shared: bool
) -> tuple[Saved, ...]:
    """List the saved tensors of one layer (`dense` or `moe`) in the order they are made."""
    norm, inside = NORMS[recipe.norm, how.norm], MLPS[recipe.mlp, how.mlp]
    dense = saved_inside(*inside)
    experts = (*MOE, *ROUTERS[recipe.router], *_named("expert", saved_inside(*inside, width="routed_ffn")))
    if shared:
        experts += _named("shared expert", saved_inside(*inside, width="shared_ffn"))
    return (
        *(_named("attention norm", norm) if recipe.pre_norms else ()),
        _consumed("attention input", 1 if recipe.packed_qkv else 3),
        *_qk_norms(recipe, norm),
        *core,
        *_post_norm("attention output norm", recipe, how),
        *_residual_mask(0, recipe, how),
        *_mlp_input(recipe, norm),
        *(experts if kind == "moe" else dense),
        *_post_norm("MLP output norm", recipe, how),
        *_residual_mask(1, recipe, how),
    )


def selective_rows(
    policy: str, recipe: Recipe, how: Implementation, kind: str, *, shared: bool
) -> tuple[Saved, ...]:
    """List what a layer keeps under a policy of selective checkpointing, one of SELECTIVE_POLICIES."""
    if policy == "matmuls":
        return EVERY_SECOND_MATMUL[recipe.mlp == "gated"]
    return layer_rows(recipe, how, kind, SELECTIVE, shared=shared)


def final_rows(recipe: Recipe, how: Implementation) -> tuple[Saved, ...]:
    """List the tensors of the norm after the last layer, and what the head reads."""
    cap = (Saved("tanh of the logit cap", "vocabulary", ELEMENT),) if recipe.logit_softcap else ()
    return (*_named("final norm", NORMS[recipe.norm, how.norm]), _consumed("head input", 1), *cap)
