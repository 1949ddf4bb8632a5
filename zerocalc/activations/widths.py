"""How wide a saved tensor is and which parallelism splits it: rows of `rows` turned into bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from zerocalc.formulas.activations import (
    head_tensor_bytes,
    position_table_bytes,
    score_tensor_bytes,
    split_tensor_bytes,
    token_tensor_bytes,
    whole_tensor_bytes,
)
from zerocalc.formulas.loss import THROUGHOUT, Line, Phase
from zerocalc.formulas.registry import apply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from zerocalc.activations.rows import Device, Dtype, Saved
    from zerocalc.layout import Dimensions


class Shape(NamedTuple):
    """Everything the bytes of a row depend on."""

    dims: Dimensions
    micro_batch: Any
    seq_len: Any
    """Positions this rank holds."""
    num_keys: Any
    """Positions each of them attends to: the whole sequence, also under context parallelism."""
    tokens: Any
    dtype: Dtype
    device: Device
    tp: int
    sp: int


def value_dim(dims: Dimensions) -> int:
    """Width of one value head."""
    return dims.head_dim if dims.v_head_dim is None else dims.v_head_dim


def _by_tokens(shape: Shape, copies: int = 1, **sizes: int) -> dict[str, Any]:
    return {"tokens": shape.tokens * copies, **sizes, "sequence_parallel": shape.sp}


def _by_width(shape: Shape, copies: int = 1, **sizes: int) -> dict[str, Any]:
    return {"tokens": shape.tokens * copies, **sizes, "tensor_parallel": shape.tp}


def _heads(shape: Shape, num_heads: int, head_dim: int) -> dict[str, Any]:
    return _by_width(shape, num_heads=num_heads, head_dim=head_dim)


def _of_one_sequence(shape: Shape, dims: Dimensions) -> dict[str, Any]:
    """Count queries and keys when the batch is one sequence; nothing otherwise."""
    heads = _heads(shape, dims.num_heads + dims.num_kv_heads, dims.head_dim)
    return {**heads, "tokens": shape.tokens * (1 // shape.micro_batch)}


WIDTHS: dict[str, tuple[Callable[..., Any], Callable[[Shape, Dimensions], dict[str, Any]]]] = {
    "hidden": (token_tensor_bytes, lambda s, d: _by_tokens(s, width=d.hidden_size)),
    "token": (token_tensor_bytes, lambda s, _: _by_tokens(s, width=1)),
    "experts": (token_tensor_bytes, lambda s, d: _by_tokens(s, width=d.num_experts)),
    "routed_token": (token_tensor_bytes, lambda s, d: _by_tokens(s, d.experts_per_token, width=1)),
    "routed_hidden": (
        token_tensor_bytes,
        lambda s, d: _by_tokens(s, d.experts_per_token, width=d.hidden_size),
    ),
    "ffn": (split_tensor_bytes, lambda s, d: _by_width(s, width=d.ffn_size)),
    "shared_ffn": (split_tensor_bytes, lambda s, d: _by_width(s, width=d.shared_ffn_size)),
    "routed_ffn": (split_tensor_bytes, lambda s, d: _by_width(s, d.experts_per_token, width=d.moe_ffn_size)),
    "query": (head_tensor_bytes, lambda s, d: _heads(s, d.num_heads, d.head_dim)),
    "key": (head_tensor_bytes, lambda s, d: _heads(s, d.num_kv_heads, d.head_dim)),
    "value": (head_tensor_bytes, lambda s, d: _heads(s, d.num_kv_heads, value_dim(d))),
    "expanded_key": (head_tensor_bytes, lambda s, d: _heads(s, d.num_heads, d.head_dim)),
    "output": (head_tensor_bytes, lambda s, d: _heads(s, d.num_heads, value_dim(d))),
    "heads": (head_tensor_bytes, lambda s, d: _heads(s, d.num_heads, 1)),
    "kv_heads": (head_tensor_bytes, lambda s, d: _heads(s, d.num_kv_heads, 1)),
    "scores": (
        score_tensor_bytes,
        lambda s, d: {**_by_width(s, num_heads=d.num_heads), "seq_len": s.num_keys},
    ),
    "packed": (head_tensor_bytes, lambda s, d: _heads(s, d.num_heads + d.num_kv_heads, d.head_dim)),
    "packed_alone": (head_tensor_bytes, _of_one_sequence),
    "vocabulary": (split_tensor_bytes, lambda s, d: _by_width(s, width=d.vocab_size)),
    "head": (whole_tensor_bytes, lambda _, d: {"num_elements": d.head_dim}),
    "expert": (whole_tensor_bytes, lambda _, d: {"num_elements": d.num_experts}),
    "index": (whole_tensor_bytes, lambda s, _: {"num_elements": s.tokens}),
    "mask": (whole_tensor_bytes, lambda s, _: {"num_elements": s.tokens * s.num_keys}),
    "vector": (whole_tensor_bytes, lambda _, d: {"num_elements": d.hidden_size}),
    "scalar": (whole_tensor_bytes, lambda *_: {"num_elements": 1}),
    "position": (position_table_bytes, lambda s, _: {"seq_len": s.seq_len, "width": 1}),
    "rotary": (position_table_bytes, lambda s, d: {"seq_len": s.seq_len, "width": d.head_dim}),
}
"""How wide a row of the tables is: the formula of its bytes, which also says who splits it, and its inputs."""


def evaluate(rows: Iterable[Saved], shape: Shape, phases: tuple[Phase, ...] = THROUGHOUT) -> tuple[Line, ...]:
    """Evaluate the rows that exist for this model and dtype."""
    lines = []
    for row in rows:
        size: int = getattr(row.cuda if row.cuda and shape.device == "cuda" else row.size, shape.dtype)
        exists = row.when == "always" or (row.when == "dropout") == (_dropout(row, shape.dims) > 0)
        if size and exists:
            function, inputs = WIDTHS[row.width]
            applied = apply(function, **inputs(shape, shape.dims), bytes_per_element=size)
            lines.append(Line(row.name, applied, phases))
    return tuple(lines)


def _dropout(row: Saved, dims: Dimensions) -> float:
    """The rate at which a row's tensor is dropped: attention's scores may have their own."""
    own = dims.attention_dropout if row.width == "scores" else None
    return dims.dropout if own is None else own


def matmul_weights(dims: Dimensions, kind: str) -> int:
    """Weights of one layer (`dense` or `moe`) that take part in matrix multiplications."""
    hidden, matrices = dims.hidden_size, 3 if dims.gated_mlp else 2
    attention = hidden * (dims.num_heads + dims.num_kv_heads) * (dims.head_dim + value_dim(dims))
    if kind == "dense":
        return attention + matrices * hidden * dims.ffn_size
    inner = dims.num_experts * dims.moe_ffn_size + dims.shared_ffn_size
    return attention + hidden * dims.num_experts + matrices * hidden * inner


def biases(dims: Dimensions) -> int:
    """Elements of one dense layer's biases where every matrix multiplication has one."""
    attention = dims.num_heads * dims.head_dim + dims.num_kv_heads * (dims.head_dim + value_dim(dims))
    return attention + 2 * dims.hidden_size + dims.ffn_size
