"""The transformer of the ZeRO papers, written `LxH`: L layers of 12·H² parameters, nothing else."""

from __future__ import annotations

from zerocalc.layout import Architecture, Layout, Tensor, Unit


def paper_transformer(num_layers: int, hidden_size: int) -> Architecture:
    """Build the papers' model: per layer the attention's 4·H² and the MLP's 8·H²; no embedding, bias or norm.

    Source: ZeRO-Infinity section 3, equation 1.
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
    return Architecture("paper_transformer", Layout(units), assumptions=(said,))
