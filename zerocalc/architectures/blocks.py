"""The small language in which families are written: linear layers, norms, embeddings, stacks of blocks.

Every function returns a tuple of tensors in registration order, so that a family reads like its model's definition.
`split` is Megatron's rule: a column-parallel layer divides its outputs, a row-parallel one its inputs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from zerocalc.layout import Buffer, Kind, Tensor, Unit
from zerocalc.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zerocalc.architectures.keys import Keys

Tensors = tuple[Tensor, ...]
Units = tuple[Unit, ...]
Split = Literal["column", "row"] | None

_AXIS: dict[Split, int | None] = {"column": 0, "row": 1, None: None}
_BIAS_AXIS: dict[Split, int | None] = {"column": 0, "row": None, None: None}


def parameter(name: str, *shape: int, kind: Kind = "other", tp_axis: int | None = None) -> Tensors:
    """Describe one bare parameter."""
    return (Tensor(name, shape, kind, tp_axis),)


def linear(
    name: str, outputs: int, inputs: int, *, bias: bool = False, split: Split = None, kind: Kind = "matrix"
) -> Tensors:
    """Describe a linear layer: weight [out, in] and, when it has one, bias [out]."""
    weight = Tensor(f"{name}.weight", (outputs, inputs), kind, _AXIS[split])
    bias_kind = kind if kind in {"shared_expert", "router"} else "bias"
    return (weight, Tensor(f"{name}.bias", (outputs,), bias_kind, _BIAS_AXIS[split])) if bias else (weight,)


def conv1d(name: str, outputs: int, inputs: int, *, split: Split) -> Tensors:
    """Describe GPT-2's linear layer: weight stored as [in, out], always with a bias."""
    weight = Tensor(
        f"{name}.weight", (inputs, outputs), "matrix", 1 if split == "column" else 0, transposed=True
    )
    return (weight, Tensor(f"{name}.bias", (outputs,), "bias", _BIAS_AXIS[split]))


def norm(name: str, width: int, *, bias: bool = False) -> Tensors:
    """Describe a norm: a weight, and a bias for a LayerNorm."""
    weight = Tensor(f"{name}.weight", (width,), "norm")
    return (weight, Tensor(f"{name}.bias", (width,), "norm")) if bias else (weight,)


def embedding(name: str, rows: int, width: int) -> Tensors:
    """Describe the token embedding, split over the vocabulary."""
    return (Tensor(f"{name}.weight", (rows, width), "embedding", 0),)


def positions(name: str, rows: int, width: int) -> Tensors:
    """Describe a learned table of positions, kept whole on every rank."""
    return (Tensor(f"{name}.weight", (rows, width), "position"),)


def gated_mlp(name: str, hidden: int, ffn: int, *, bias: bool = False, kind: Kind = "matrix") -> Tensors:
    """Describe gate, up and down projections."""
    return (
        *linear(f"{name}.gate_proj", ffn, hidden, bias=bias, split="column", kind=kind),
        *linear(f"{name}.up_proj", ffn, hidden, bias=bias, split="column", kind=kind),
        *linear(f"{name}.down_proj", hidden, ffn, bias=bias, split="row", kind=kind),
    )


def mlp(up: str, down: str, hidden: int, ffn: int, *, bias: bool = True) -> Tensors:
    """Describe the plain two-matrix MLP."""
    return (
        *linear(up, ffn, hidden, bias=bias, split="column"),
        *linear(down, hidden, ffn, bias=bias, split="row"),
    )


def fused_experts(name: str, experts: int, hidden: int, ffn: int) -> Tensors:
    """Describe a layer's routed experts as transformers 5 stores them: two 3-D parameters."""
    return (
        *parameter(f"{name}.gate_up_proj", experts, 2 * ffn, hidden, kind="expert", tp_axis=1),
        *parameter(f"{name}.down_proj", experts, hidden, ffn, kind="expert", tp_axis=2),
    )


@dataclass(eq=False, repr=False)
class Heads(Record):
    """The sizes of one attention: query heads, key and value heads, the width of a head."""

    hidden: int
    num: int
    num_kv: int
    dim: int

    @property
    def width(self) -> int:
        """Width of all query heads."""
        return self.num * self.dim

    @property
    def kv_width(self) -> int:
        """Width of all key heads."""
        return self.num_kv * self.dim

    @classmethod
    def read(cls, keys: Keys, *, even: bool = False) -> Heads:
        """Read grouped-query heads; a null head_dim is hidden_size / heads, null key-value heads are all heads.

        `even` for classes that refuse heads that do not divide the hidden size, even with a head_dim of their own.
        """
        hidden, num = keys.size("hidden_size"), keys.size("num_attention_heads")
        num_kv = keys.size_or("num_key_value_heads", num)
        dim = keys.optional_size("head_dim")
        if dim is None or even:
            shared = keys.share("hidden_size", "num_attention_heads", even=even)
        return cls(hidden, num, num_kv, shared if dim is None else dim)

    @classmethod
    def full(
        cls, keys: Keys, hidden: str = "hidden_size", heads: str = "num_attention_heads", *, even: bool = True
    ) -> Heads:
        """Read multi-head attention whose heads share the hidden size."""
        dim, num = keys.share(hidden, heads, even=even), keys.size(heads)
        return cls(keys.size(hidden), num, num, dim)


def attention(
    a: Heads,
    *,
    qkv_bias: bool,
    out_bias: bool,
    name: str = "self_attn",
    order: str = "qkv",
    out: str = "o_proj",
) -> Tensors:
    """Describe separate query, key, value and output projections, in the order their class registers them."""
    widths = {"q": a.width, "k": a.kv_width, "v": a.kv_width}
    projections = [
        tensor
        for letter in order
        for tensor in linear(f"{name}.{letter}_proj", widths[letter], a.hidden, bias=qkv_bias, split="column")
    ]
    return (*projections, *linear(f"{name}.{out}", a.hidden, a.width, bias=out_bias, split="row"))


def single(tensors: Iterable[Tensor]) -> Units:
    """Make one unit of each module outside the stacks; the tensors carry their full names."""
    by_module = groupby(tensors, key=lambda tensor: tensor.module)
    return tuple(Unit(module, tuple(group)) for module, group in by_module)


def stack(name: str, layer_class: str, *runs: tuple[Tensors, int]) -> Units:
    """Make the units of a stack from runs of equal layers: (tensors of one layer, how many); empty runs vanish."""
    units, first = [], 0
    for tensors, count in runs:
        if count > 0:
            units.append(Unit(name, tensors, count, first, is_layer=True, layer_class=layer_class))
            first += count
    return tuple(units)


def rotary(name: str, dim: int, prefix: str = "") -> tuple[Buffer, ...]:
    """Describe the rotary table of a model: inverse frequencies and the copy that scaling restores from."""
    shape = (-(-dim // 2),)
    return (
        Buffer(f"{name}.{prefix}inv_freq", shape),
        Buffer(f"{name}.{prefix}original_inv_freq", shape),
    )


def prefixed(prefix: str, tensors: Iterable[Tensor]) -> Tensors:
    """Put a module path before the names."""
    return tuple(replace(tensor, name=f"{prefix}.{tensor.name}") for tensor in tensors)
