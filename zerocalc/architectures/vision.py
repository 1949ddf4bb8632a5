"""Vision: ViT, and Gemma 3 with its SigLIP tower."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from zerocalc.architectures.assemble import finish
from zerocalc.architectures.blocks import (
    Heads,
    Tensors,
    Units,
    attention,
    linear,
    mlp,
    norm,
    parameter,
    positions,
    prefixed,
    single,
    stack,
)
from zerocalc.architectures.llama_like import llama_like
from zerocalc.layout import Architecture, Buffer, Layout

if TYPE_CHECKING:
    from zerocalc.architectures.keys import Keys


def vit(keys: Keys) -> Architecture:
    """Describe ViTForImageClassification."""
    h, layers, ffn = keys.size("hidden_size"), keys.layers(), keys.size("intermediate_size")
    bias, patches = keys.flag("qkv_bias"), _num_patches(keys)
    a = _vit_heads(keys)
    layer = (
        *attention(a, qkv_bias=bias, out_bias=True, name="attention"),
        *norm("layernorm_before", h, bias=True),
        *norm("layernorm_after", h, bias=True),
        *mlp("mlp.fc1", "mlp.fc2", h, ffn),
    )
    embed = (
        *parameter("cls_token", 1, 1, h),
        *parameter("position_embeddings", 1, patches + 1, h, kind="position"),
        *_patch_projection("patch_embeddings.projection", keys),
    )
    labels = _num_labels(keys)
    layout = Layout(
        units=(
            *single(prefixed("vit.embeddings", embed)),
            *stack("vit.layers", "ViTLayer", (layer, layers)),
            *single(norm("vit.layernorm", h, bias=True)),
            *single(linear("classifier", labels, h, bias=True, kind="head") if labels else ()),
        )
    )
    return finish(keys, layout, None, ("activations of vision models are not modelled",))


def gemma3(keys: Keys) -> Architecture:
    """Describe Gemma 3 with vision: SigLIP, a projector, and the text model. Only the outer tie flag counts."""
    vision = keys.nested("vision_config", "siglip_vision_model")
    tied = keys.flag("tie_word_embeddings")
    text_keys = keys.nested("text_config", "gemma3_text", tie_word_embeddings=tied)
    text = llama_like(text_keys, root="model.language_model")
    width, hidden = vision.size("hidden_size"), text_keys.size("hidden_size")
    projector = (
        *parameter("mm_input_projection_weight", width, hidden, kind="matrix"),
        *norm("mm_soft_emb_norm", width),
    )
    ids = Buffer("model.vision_tower.embeddings.position_ids", (1, _num_patches(vision)), "int64")
    layout = replace(
        text.layout,
        units=(
            *_siglip(vision, "model.vision_tower"),
            *single(prefixed("model.multi_modal_projector", projector)),
            *text.layout.units,
        ),
        buffers=(ids, *text.layout.buffers),
    )
    return finish(keys, layout, text.dimensions, ("activations of the vision tower are not counted",))


def _siglip(keys: Keys, root: str) -> Units:
    """Describe the SigLIP tower; its pooling head is there unless `vision_use_head` is false."""
    a, layers, ffn = Heads.full(keys), keys.layers(), keys.size("intermediate_size")
    h = a.hidden
    layer = (
        *norm("layer_norm1", h, bias=True),
        *attention(a, qkv_bias=True, out_bias=True, order="kvq", out="out_proj"),
        *norm("layer_norm2", h, bias=True),
        *mlp("mlp.fc1", "mlp.fc2", h, ffn),
    )
    embed = (
        *_patch_projection("patch_embedding", keys),
        *positions("position_embedding", _num_patches(keys), h),
    )
    head = (
        *parameter("probe", 1, 1, h),
        *parameter("attention.in_proj_weight", 3 * h, h, kind="matrix", tp_axis=0),
        *parameter("attention.in_proj_bias", 3 * h, kind="bias", tp_axis=0),
        *linear("attention.out_proj", h, h, bias=True, split="row"),
        *norm("layernorm", h, bias=True),
        *mlp("mlp.fc1", "mlp.fc2", h, ffn),
    )
    return (
        *single(prefixed(f"{root}.embeddings", embed)),
        *stack(f"{root}.encoder.layers", "SiglipEncoderLayer", (layer, layers)),
        *single(norm(f"{root}.post_layernorm", h, bias=True)),
        *single(prefixed(f"{root}.head", head) if keys.flag("vision_use_head") else ()),
    )


def _patch_projection(name: str, keys: Keys) -> Tensors:
    """Describe the convolution that turns each patch into one hidden vector."""
    hidden, shape = keys.size("hidden_size"), keys.pair("patch_size")
    return (
        *parameter(f"{name}.weight", hidden, keys.size("num_channels"), *shape, kind="matrix"),
        *parameter(f"{name}.bias", hidden, kind="bias"),
    )


def _num_patches(keys: Keys) -> int:
    """Count the patches of one image; what does not fill a patch is cut off."""
    (height, width), (rows, columns) = keys.pair("image_size"), keys.pair("patch_size")
    if rows > height or columns > width:
        raise keys.error("patch_size", "must not be larger than image_size", keys.size("patch_size"))
    return (height // rows) * (width // columns)


def _vit_heads(keys: Keys) -> Heads:
    """Read the heads; an explicit head_dim wins, as in the text models."""
    dim = keys.optional_size("head_dim")
    if dim is None:
        return Heads.full(keys, even=False)
    num = keys.size("num_attention_heads")
    return Heads(keys.size("hidden_size"), num, num, dim)


def _num_labels(keys: Keys) -> int:
    """Read the number of classes: as written, else as many as id2label names, else two."""
    given = keys.optional_size("num_labels", minimum=0)
    named = keys.length("id2label") if given is None else given
    return 2 if named is None else named
