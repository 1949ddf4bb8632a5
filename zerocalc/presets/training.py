"""Rows about training: published models, optimizers and precisions, and the bytes per parameter a pair costs."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

from zerocalc.presets.rows import Figure, Preset, Row, row_of
from zerocalc.units import dtype_bytes

COUNT = {"params": Fraction(1), "": Fraction(1)}


class ModelPreset(NamedTuple):
    """A published model: its config as published, and the parameter count that must follow from it."""

    id: str
    hf_id: str | None
    config: dict[str, Any] | None
    num_params: int | None
    figure: Figure | None
    config_sources: tuple[str, ...]
    notes: str
    origin: str
    assumption: str | None


def read_model(preset: Preset, config: dict[str, Any] | None) -> ModelPreset:
    """Read a model's row; `config` is the parsed config beside it, None when there is only a count."""
    row = row_of(preset)
    figure = row.figure("num_params", COUNT)
    if config is None and (figure is None or figure.whole < 1):
        raise row.error("num_params", f"is missing, and there is no {preset.id}.json beside the file")
    model = ModelPreset(
        id=preset.id,
        hf_id=row.text("hf_id", "") or None,
        config=config,
        num_params=figure.whole if figure else None,
        figure=figure,
        config_sources=row.texts("config_sources"),
        notes=row.text("notes", ""),
        origin=preset.origin,
        assumption=preset.assumption,
    )
    row.done()
    return model


class OptimizerState(NamedTuple):
    """One tensor an optimizer keeps per parameter tensor.

    `dtype` is a fixed element type, `moment` (what the precision keeps moments in) or `param` (the parameters the
    optimizer updates: the master copy where there is one). `rule`: `per_element`; `factored` (a matrix R x C keeps
    R + C elements, over the last two dimensions; a vector n keeps n); `blocks` (one scale per `block` elements;
    tensors under `min_elements`, or not dividing when `whole_blocks`, fall back to `fallback`, judged on the whole
    `tensor` or on the rank's `shard`). `tensors`: `all`, `hidden_matrices` (2-D, no embedding and no head) or
    `other_tensors` (the rest).
    """

    name: str
    dtype: str
    rule: str = "per_element"
    tensors: str = "all"
    block: int = 0
    scale_dtype: str = "fp32"
    min_elements: int = 0
    whole_blocks: bool = False
    judged_on: str = "tensor"
    fallback: str = "fp32"


class Optimizer(NamedTuple):
    """An optimizer: the states it keeps, and where that was read."""

    id: str
    name: str
    states: tuple[OptimizerState, ...]
    source: str
    confidence: str
    notes: str
    origin: str
    assumption: str | None

    @property
    def needs_shapes(self) -> bool:
        """Whether exact bytes depend on tensor shapes; bytes per parameter are then those of a large hidden matrix."""
        return any(state.rule != "per_element" or state.tensors != "all" for state in self.states)


def _read_state(row: Row) -> OptimizerState:
    """Read one optimizer state."""
    symbolic = ("moment", "param")
    state = OptimizerState(
        name=row.text("name"),
        dtype=row.dtype("dtype", also=symbolic),
        rule=row.text("rule", "per_element", allowed=("per_element", "factored", "blocks")),
        tensors=row.text("tensors", "all", allowed=("all", "hidden_matrices", "other_tensors")),
        block=row.integer("block", 0),
        scale_dtype=row.dtype("scale_dtype", "fp32"),
        min_elements=row.integer("min_elements", 0),
        whole_blocks=bool(row.take("whole_blocks", "true or false", bool)),
        judged_on=row.text("judged_on", "tensor", allowed=("tensor", "shard")),
        fallback=row.dtype("fallback", "fp32", also=symbolic),
    )
    if (state.rule == "blocks") != (state.block > 0):
        raise row.error("block", "is required by rule 'blocks', and only there")
    row.done()
    return state


def read_optimizer(preset: Preset) -> Optimizer:
    """Read an optimizer's row."""
    row = row_of(preset)
    optimizer = Optimizer(
        id=preset.id,
        name=row.text("name", preset.id),
        states=tuple(_read_state(each) for each in row.rows("states")),
        source=row.text("source", row.default_source),
        confidence=row.text("confidence", "medium"),
        notes=row.text("notes", ""),
        origin=preset.origin,
        assumption=preset.assumption,
    )
    row.done()
    return optimizer


class WeightCopy(NamedTuple):
    """A further copy of weights held beside the parameters, such as the FP8 cache of linear layers."""

    name: str
    dtype: str
    tensors: str
    confidence: str


class Precision(NamedTuple):
    """Element types of a training step. `master` is None where the optimizer updates the parameters themselves."""

    id: str
    name: str
    param_dtype: str
    grad_dtype: str
    master_dtype: str | None
    moment_dtype: str
    reduce_dtype: str
    extra_states: tuple[OptimizerState, ...]
    weight_copies: tuple[WeightCopy, ...]
    source: str
    confidence: str
    notes: str
    origin: str
    assumption: str | None


def _read_copy(row: Row) -> WeightCopy:
    """Read one weight copy."""
    copy = WeightCopy(
        row.text("name"), row.dtype("dtype"), row.text("tensors", "all"), row.text("confidence", "medium")
    )
    row.done()
    return copy


def read_precision(preset: Preset) -> Precision:
    """Read a precision's row."""
    row = row_of(preset)
    master = row.dtype("master", "none", also=("none",))
    precision = Precision(
        id=preset.id,
        name=row.text("name", preset.id),
        param_dtype=row.dtype("param"),
        grad_dtype=row.dtype("grad"),
        master_dtype=None if master == "none" else master,
        moment_dtype=row.dtype("moment"),
        reduce_dtype=row.dtype("reduce", row.dtype("grad")),
        extra_states=tuple(_read_state(each) for each in row.rows("extra_states")),
        weight_copies=tuple(_read_copy(each) for each in row.rows("weight_copies")),
        source=row.text("source", row.default_source),
        confidence=row.text("confidence", "medium"),
        notes=row.text("notes", ""),
        origin=preset.origin,
        assumption=preset.assumption,
    )
    row.done()
    return precision


def resolve_dtype(dtype: str, precision: Precision) -> str:
    """Return the element type that `moment` and `param` stand for under a precision; others pass unchanged."""
    updated = precision.master_dtype or precision.param_dtype
    return {"moment": precision.moment_dtype, "param": updated}.get(dtype, dtype)


def _per_element(state: OptimizerState, precision: Precision) -> Fraction:
    """Bytes of one state per element of a large hidden matrix, block scales included."""
    if state.rule == "factored" or state.tensors == "other_tensors":
        return Fraction(0)
    scale = Fraction(dtype_bytes(state.scale_dtype), state.block) if state.block else Fraction(0)
    return dtype_bytes(resolve_dtype(state.dtype, precision)) + scale


def optimizer_bytes_per_param(optimizer: Optimizer, precision: Precision) -> Fraction:
    """Bytes of master weights and optimizer states per trainable parameter (K), for any pair of presets.

    Exact where `optimizer.needs_shapes` is false; else what an element of a large hidden matrix costs: factored
    states vanish, and small tensors that fall back are not counted.
    """
    master = dtype_bytes(precision.master_dtype) if precision.master_dtype else 0
    states = (*precision.extra_states, *optimizer.states)
    return sum((_per_element(state, precision) for state in states), Fraction(master))
