"""The transformer of the ZeRO papers, written `LxH` or `LxHxA`: L layers of 12·H² parameters, A heads, nothing else."""

from __future__ import annotations

from zerocalc.errors import SpecError
from zerocalc.layout import Architecture, Dimensions, Layout, Tensor, Unit


def paper_transformer(num_layers: int, hidden_size: int, num_heads: int | None = None) -> Architecture:
    """Build the papers' model: per layer the attention's 4·H² and the MLP's 8·H²; no embedding, bias or norm.

    Activations depend on the heads and are known only with them. Source: ZeRO-Infinity section 3, equation 1.
    Raises SpecError where the heads do not divide the hidden size.
    """
    h = hidden_size
    layer = (
        Tensor("attention.qkv.weight", (3 * h, h), tp_axis=0),
        Tensor("attention.out.weight", (h, h), tp_axis=1),
        Tensor("mlp.up.weight", (4 * h, h), tp_axis=0),
        Tensor("mlp.down.weight", (h, 4 * h), tp_axis=1),
    )
    units = (Unit("layers", layer, count=num_layers, is_layer=True, layer_class="Layer"),)
    said = f"{num_layers}x{h} read as {num_layers} layers of hidden size {h}, 12·layers·hidden² parameters, no embedding"
    dimensions = None if num_heads is None else _dimensions(num_layers, h, num_heads)
    return Architecture("paper_transformer", Layout(units), dimensions, assumptions=(said,))


def _dimensions(num_layers: int, hidden_size: int, num_heads: int) -> Dimensions:
    """The sizes of a GPT-2-like layer without a vocabulary."""
    if hidden_size % num_heads:
        raise SpecError(
            f"{num_layers}x{hidden_size}x{num_heads}: {num_heads} heads do not divide {hidden_size}"
        )
    return Dimensions(
        recipe="gpt2",
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=hidden_size // num_heads,
        ffn_size=4 * hidden_size,
        vocab_size=0,
    )
