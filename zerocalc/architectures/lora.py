"""LoRA adapters as a layout of their own: exact tensors for every targeted linear layer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from zerocalc.errors import SpecError
from zerocalc.layout import Layout, Tensor, Unit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ALL_LINEAR = "all-linear"
MAX_RANK = 1_000_000


def lora_layout(layout: Layout, *, rank: int, targets: Sequence[str]) -> Layout:
    """Lay out the adapters PEFT adds: for each targeted linear [out, in], A [rank, in] and B [out, rank].

    Targets are last names of modules (`q_proj`), or `all-linear` for every linear layer but the head. As in PEFT, only
    linear modules can be targeted: the experts that transformers 5 fuses into 3-D parameters, routers, embeddings and
    tied heads are none. Biases and ranks per layer are not modelled.

    Raises SpecError for a rank out of range, and for a target no linear layer has, naming those there are.
    """
    if not 1 <= rank <= MAX_RANK:
        raise SpecError(f"LoRA rank must be between 1 and {MAX_RANK:,} (got {rank:,})")
    available = linear_names(layout)
    wanted = set(targets)
    if missing := sorted(wanted - available - {ALL_LINEAR}):
        raise SpecError(
            f"LoRA target {missing[0]!r} is no linear layer of this model",
            hint=f"available: {', '.join(sorted(available)) or 'none'}; or {ALL_LINEAR}",
        )
    if not wanted:
        raise SpecError("LoRA needs at least one target", hint=f"such as {ALL_LINEAR}")
    units = (replace(unit, tensors=tuple(_adapters(unit, wanted, rank))) for unit in layout.units)
    return Layout(units=tuple(unit for unit in units if unit.tensors))


def linear_names(layout: Layout) -> set[str]:
    """Name the modules that can be targeted, by the last part of their names."""
    return {_last_name(tensor) for tensor, _ in layout.grouped() if _is_linear(tensor)}


def _adapters(unit: Unit, targets: set[str], rank: int) -> Iterator[Tensor]:
    """Give the A and B of every targeted layer of a block; tensor parallelism splits them as it splits the layer."""
    for tensor in unit.tensors:
        hidden = ALL_LINEAR in targets and tensor.kind != "head"
        if not _is_linear(tensor) or not (hidden or _last_name(tensor) in targets):
            continue
        out_axis, in_axis = (1, 0) if tensor.transposed else (0, 1)
        split_in, split_out = tensor.tp_axis == in_axis, tensor.tp_axis == out_axis
        yield Tensor(
            f"{tensor.module}.lora_A.default.weight",
            (rank, tensor.shape[in_axis]),
            "matrix",
            1 if split_in else None,
        )
        yield Tensor(
            f"{tensor.module}.lora_B.default.weight",
            (tensor.shape[out_axis], rank),
            "matrix",
            0 if split_out else None,
        )


def _is_linear(tensor: Tensor) -> bool:
    """Tell the weight of a linear module from bare parameters, convolutions and fused experts."""
    is_weight = tensor.name.endswith(".weight") and len(tensor.shape) == 2
    return is_weight and tensor.kind in {"matrix", "head", "shared_expert"}


def _last_name(tensor: Tensor) -> str:
    """Name the module by its last part, as PEFT's target_modules match it."""
    return tensor.module.rpartition(".")[2]
