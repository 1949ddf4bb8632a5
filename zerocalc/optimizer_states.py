"""Optimizer states tensor by tensor: factored, block-quantised, or only for some tensors. Rules are the presets' rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zerocalc.formulas.optimizers import block_state_bytes, element_state_bytes, factored_state_bytes
from zerocalc.formulas.registry import Applied, Grouped, apply, apply_grouped
from zerocalc.formulas.states import state_bytes
from zerocalc.records import Record
from zerocalc.units import ceil_div, dtype_bytes

if TYPE_CHECKING:
    from zerocalc.layout import Tensor
    from zerocalc.presets import OptimizerState
    from zerocalc.rank import Part
    from zerocalc.specs.job import OptimizerSpec


@dataclass(eq=False, repr=False)
class StateLine(Record):
    """One optimizer state's bytes over a part's tensors, or those of one rule where tensors differ."""

    name: str
    amount: Applied | Grouped


def optimizer_lines(part: Part, optimizer: OptimizerSpec, shards: int) -> Iterator[StateLine]:
    """The optimizer states of one trained part on the rank that holds most; one flat K where shapes do not matter.

    Nor do they where only some of a layout's parameters are trained: which tensors those are is not known.
    """
    if not optimizer.needs_shapes or not part.shapes_known:
        yield StateLine(
            "optimizer_states",
            apply(
                state_bytes,
                num_params=part.num_params,
                bytes_per_param=optimizer.bytes_per_param,
                shards=shards,
            ),
        )
        return
    precision = optimizer.precision_row
    if precision.master_dtype:
        per_param = dtype_bytes(precision.master_dtype)
        master = apply(state_bytes, num_params=part.num_params, bytes_per_param=per_param, shards=shards)
        yield StateLine("master_weights", master)
    for state in (*precision.extra_states, *optimizer.row.states):
        yield from _state_lines(state, part, precision, shards)


def _state_lines(state: OptimizerState, part: Part, precision: Any, shards: int) -> Iterator[StateLine]:
    """One state's bytes, one line per rule that its tensors fall under."""
    tensors = [(tensor, count) for tensor, count in part.layout.grouped() if _kept(state, tensor)]
    by_rule: dict[Any, list[tuple[int, Mapping[str, Any]]]] = {}
    for tensor, count in tensors:
        rule, inputs = _rule(state, tensor, precision, shards)
        by_rule.setdefault(rule, []).append((count, inputs))
    for rule, groups in by_rule.items():
        yield StateLine(state.name, apply_grouped(rule, groups))


def _kept(state: OptimizerState, tensor: Tensor) -> bool:
    """Whether the optimizer keeps this state for this tensor."""
    hidden = len(tensor.shape) >= 2 and tensor.kind not in {"embedding", "position", "head"}
    return state.tensors == "all" or hidden == (state.tensors == "hidden_matrices")


def _rule(
    state: OptimizerState, tensor: Tensor, precision: Any, shards: int
) -> tuple[Any, Mapping[str, Any]]:
    """The formula for one state of one tensor, and its inputs."""
    from zerocalc.presets import resolve_dtype

    per_element = dtype_bytes(resolve_dtype(state.dtype, precision))
    if state.rule == "factored" and len(tensor.shape) >= 2:
        *batch, rows, columns = tensor.shape
        return factored_state_bytes, {
            "matrices": _product(batch), "rows": rows, "columns": columns,
            "bytes_per_element": per_element, "shards": shards,
        }  # fmt: skip
    if state.rule == "blocks" and not _falls_back(state, tensor, shards):
        return block_state_bytes, {
            "num_elements": tensor.numel, "bytes_per_element": per_element, "block": state.block,
            "scale_bytes": dtype_bytes(state.scale_dtype), "shards": shards,
        }  # fmt: skip
    if state.rule == "blocks":
        per_element = dtype_bytes(resolve_dtype(state.fallback, precision))
    return element_state_bytes, {
        "num_elements": tensor.numel, "bytes_per_element": per_element, "shards": shards,
    }  # fmt: skip


def _falls_back(state: OptimizerState, tensor: Tensor, shards: int) -> bool:
    """Whether a tensor is too small, or of the wrong size, to be kept in blocks."""
    judged = ceil_div(tensor.numel, shards) if state.judged_on == "shard" else tensor.numel
    return bool(judged < state.min_elements or (state.whole_blocks and judged % state.block))


def _product(sizes: Iterable[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total
