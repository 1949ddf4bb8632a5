"""Group named tensors of an unknown model into layers: a running number in the names makes a stack."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from zerocalc.layout import Buffer, Kind, Layout, Tensor, Tie, Unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_STACK = re.compile(r"(?P<stack>.+?)\.(?P<index>0|[1-9][0-9]{0,8})\.(?P<rest>.+)")
_PARTS = re.compile(r"([0-9]+)")
_BUFFER = re.compile(
    r"(^|[._])(inv_freq|position_ids|token_type_ids|e_score_correction_bias|expert_bias|masked_bias|causal_mask|"
    r"running_mean|running_var|num_batches_tracked|weight_scale_inv|weight_scale|input_scale|scales|cos_cached|"
    r"sin_cached|embed_positions|relative_position_index)$"
)
_MASK_DIMENSIONS = 4
_WHOLE_OR_BOOL = re.compile(r"[IU][0-9]+|BOOL|F8_E8M0")
_EMBEDDINGS = {
    "embed_tokens", "wte", "word_embeddings", "embed_in", "shared", "tok_embeddings", "embeddings", "embedding",
}  # fmt: skip
_POSITIONS = {"wpe", "embed_positions", "position_embeddings", "position_embedding"}
_HEADS = {"lm_head", "embed_out", "output_projection"}
_STACKS = {"layers", "layer", "blocks", "block", "h"}
_ROUTERS = {"gate", "router"}
_COLUMN = {"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "qkv_proj", "gate_up_proj", "w1", "w3"}
_ROW = {"o_proj", "down_proj", "out_proj", "w2"}

DTYPES = {"F64": "fp64", "F32": "fp32", "F16": "fp16", "BF16": "bf16", "BOOL": "bool"}


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor of a checkpoint."""

    name: str
    shape: tuple[int, ...]
    dtype: str


def grouped_layout(tensors: Sequence[Stored], ties: Sequence[Tie]) -> tuple[Layout, tuple[str, ...]]:
    """Group a checkpoint's tensors into units, ties and buffers, and say what had to be guessed."""
    tied = {tie.name for tie in ties}
    buffers = [tensor for tensor in tensors if _is_buffer(tensor)]
    held = {tensor.name for tensor in buffers}
    params = sorted(
        (t for t in tensors if t.name not in held | tied), key=lambda tensor: _natural(tensor.name)
    )
    layout = Layout(
        units=_units(params),
        ties=tuple(tie for tie in ties if tie.name not in held),
        buffers=tuple(_buffers(buffers)),
    )
    notes = [
        "tensors in the order of their names, the head last: a checkpoint does not keep the order of registration"
    ]
    if packed := sum(
        1 for tensor in buffers if len(tensor.shape) > 1 and _WHOLE_OR_BOOL.fullmatch(tensor.dtype)
    ):
        notes.append(
            f"{packed} tensors of whole numbers are counted as buffers; packed weights among them are not"
        )
    return layout, tuple(notes)


def _is_buffer(tensor: Stored) -> bool:
    """Tell what is held but not trained."""
    mask = tensor.name.endswith("attn.bias") and len(tensor.shape) == _MASK_DIMENSIONS
    return mask or bool(_WHOLE_OR_BOOL.fullmatch(tensor.dtype) or _BUFFER.search(tensor.name))


def _natural(name: str) -> tuple[tuple[int, int | str], ...]:
    """Order names with their numbers as numbers; the head comes last."""
    last = (1 if _module_name(name) in _HEADS else 0, 0)
    parts = (((0, int(part)) if part.isdigit() else (1, part)) for part in _PARTS.split(name) if part)
    return (last, *parts)


def _units(tensors: Iterable[Stored]) -> tuple[Unit, ...]:
    """Make units of stacks whose blocks repeat; everything else stands alone, by module."""
    blocks: dict[tuple[str, int], list[Tensor]] = {}
    order: list[tuple[str, int] | Tensor] = []
    for stored in tensors:
        match = _STACK.fullmatch(stored.name)
        if match is None:
            order.append(_tensor(stored.name, stored))
            continue
        key = (match["stack"], int(match["index"]))
        if key not in blocks:
            blocks[key] = []
            order.append(key)
        blocks[key].append(_tensor(match["rest"], stored))
    repeated = {stack for (stack, index), block in blocks.items() if blocks.get((stack, index + 1)) == block}
    repeated |= {stack for stack, _ in blocks if stack.rpartition(".")[2] in _STACKS}
    units: list[Unit] = []
    for item in order:
        if isinstance(item, Tensor):
            _append_single(units, item)
        elif item[0] in repeated:
            _append_block(units, item, tuple(blocks[item]))
        else:
            for tensor in blocks[item]:
                name = f"{item[0]}.{item[1]}.{tensor.name}"
                _append_single(units, Tensor(name, tensor.shape, tensor.kind, tensor.tp_axis))
    return tuple(units)


def _append_block(units: list[Unit], key: tuple[str, int], tensors: tuple[Tensor, ...]) -> None:
    """Add one block, merging it with an equal one just before it."""
    stack, index = key
    last = units[-1] if units else None
    if (
        last is not None
        and last.name == stack
        and last.tensors == tensors
        and last.first + last.count == index
    ):
        units[-1] = Unit(stack, tensors, last.count + 1, last.first, is_layer=True)
    else:
        units.append(Unit(stack, tensors, 1, index, is_layer=True))


def _append_single(units: list[Unit], tensor: Tensor) -> None:
    """Add one tensor outside the stacks to the unit of its module."""
    name = tensor.module or tensor.name
    last = units[-1] if units else None
    if last is not None and not last.is_layer and last.name == name:
        units[-1] = Unit(name, (*last.tensors, tensor))
    else:
        units.append(Unit(name, (tensor,)))


def _tensor(name: str, stored: Stored) -> Tensor:
    """Guess what a tensor is from its name."""
    kind = _kind(stored.name, stored.shape)
    module = _module_name(stored.name)
    axis: int | None = None
    if len(stored.shape) == 2 and stored.name.endswith(".weight"):
        axis = 0 if kind in {"embedding", "head"} or module in _COLUMN else 1 if module in _ROW else None
    return Tensor(name, stored.shape, kind, axis)


def _kind(name: str, shape: tuple[int, ...]) -> Kind:
    """Guess the kind of a tensor from its name and shape."""
    parts = name.split(".")
    module = _module_name(name)
    by_name: tuple[tuple[bool, Kind], ...] = (
        ("experts" in parts, "expert"),
        (any(part.startswith("shared_expert") for part in parts), "shared_expert"),
        (module in _HEADS and len(shape) == 2, "head"),
        (module in _EMBEDDINGS and len(shape) == 2, "embedding"),
        (module in _POSITIONS, "position"),
        (
            (module in _ROUTERS and "mlp" in parts) or (module == "gate" and "block_sparse_moe" in parts),
            "router",
        ),
        (len(shape) == 1 and ("norm" in module.lower() or module.startswith("ln_")), "norm"),
        (parts[-1].endswith("bias"), "bias"),
        (len(shape) >= 2, "matrix"),
    )
    return next((kind for matches, kind in by_name if matches), "other")


def _module_name(name: str) -> str:
    """Name the module a tensor belongs to by its last part."""
    parts = name.split(".")
    return parts[-2] if len(parts) > 1 else ""


def _buffers(tensors: Iterable[Stored]) -> Iterable[Buffer]:
    """Name the buffers, those of equal layers once with their count."""
    named = [(re.sub(r"\.[0-9]+\.", ".*.", tensor.name, count=1), tensor) for tensor in tensors]
    alike = sorted(named, key=lambda item: (item[0], item[1].shape, item[1].dtype))
    for (pattern, shape, dtype), group in groupby(
        alike, key=lambda item: (item[0], item[1].shape, item[1].dtype)
    ):
        names = [tensor.name for _, tensor in group]
        name = pattern if len(names) > 1 else names[0]
        yield Buffer(name, shape, DTYPES.get(dtype, dtype.lower()), persistent=True, count=len(names))
