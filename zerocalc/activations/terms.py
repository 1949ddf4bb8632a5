"""The activations of one rank: the rows of `tables` evaluated for a model, a batch and a parallel layout."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from zerocalc.activations import rows as table_rows
from zerocalc.activations import tables
from zerocalc.activations.estimate import ActivationEstimate, LayerActivations
from zerocalc.activations.widths import Shape, biases, evaluate, matmul_weights
from zerocalc.errors import SpecError
from zerocalc.formulas.activations import (
    cast_weight_bytes,
    checkpoint_bytes,
    padded_label_bytes,
    shifted_label_bytes,
)
from zerocalc.formulas.loss import FORWARD, LOSSES, THROUGHOUT, WHOLE_TURN, Count, Line, Phase, loss_lines
from zerocalc.formulas.registry import apply
from zerocalc.units import ceil_div, smallest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from zerocalc.activations.rows import Attention, Checkpointing, Device, Dtype, Saved
    from zerocalc.activations.tables import Implementation, Recipe
    from zerocalc.layout import Dimensions

T = TypeVar("T")


def _cast(
    name: str, num_weights: int, shape: Shape, phases: tuple[Phase, ...] = THROUGHOUT
) -> tuple[Line, ...]:
    """Count the 16-bit copies that autocast makes of weights; nothing in the other modes."""
    if shape.dtype != "autocast":
        return ()
    applied = apply(cast_weight_bytes, num_weights=num_weights, bytes_per_element=2, tensor_parallel=shape.tp)
    return (Line(name, applied, phases),)


def _full_layer(kind: str, count: int, rows: Iterable[Saved], shape: Shape) -> LayerActivations:
    copies = _cast("16-bit copies of the weights", matmul_weights(shape.dims, kind), shape)
    return LayerActivations(kind, count, evaluate(rows, shape) + copies)


def _checkpointed_layer(kind: str, count: int, shape: Shape, partitions: int) -> LayerActivations:
    applied = apply(
        checkpoint_bytes,
        tokens=shape.tokens,
        hidden_size=shape.dims.hidden_size,
        bytes_per_element=getattr(table_rows.RESIDUAL, shape.dtype),
        partitions=partitions,
    )
    return LayerActivations(kind, count, (Line("layer input", applied),))


def _layers(
    recipe: Recipe,
    how: Implementation,
    shape: Shape,
    *,
    attention: Attention,
    checkpointing: Checkpointing,
    selective_policy: str,
    selective_every: int,
    counts: Mapping[str, int],
    partitions: int,
) -> tuple[tuple[LayerActivations, ...], tuple[LayerActivations, ...]]:
    """Work out what every kind of layer keeps, and what comes back when one is computed again."""
    saved, recomputed = [], []
    core = tables.attention_core(recipe, how, attention)
    for kind, count in counts.items():
        shared = shape.dims.shared_ffn_size > 0
        whole = _full_layer(kind, count, tables.layer_rows(recipe, how, kind, core, shared=shared), shape)
        match checkpointing:
            case "none":
                saved.append(whole)
            case "selective" if selective_policy == "layers":
                again = count // selective_every
                if count > again:
                    saved.append(LayerActivations(kind, count - again, whole.lines))
                if again:
                    saved.append(_checkpointed_layer(kind, again, shape, partitions))
                    recomputed.append(LayerActivations(kind, 1, whole.lines))
            case "selective":
                kept = tables.selective_rows(selective_policy, recipe, how, kind, shared=shared)
                saved.append(_full_layer(kind, count, kept, shape))
                core_only = selective_policy == "attention"
                recomputed.append(
                    LayerActivations(kind, 1, evaluate(core, shape) if core_only else whole.lines)
                )
            case "full":
                saved.append(_checkpointed_layer(kind, count, shape, partitions))
                recomputed.append(LayerActivations(kind, 1, whole.lines))
    return tuple(saved), tuple(recomputed)


def _shared_lines(
    recipe: Recipe,
    how: Implementation,
    shape: Shape,
    *,
    attention: Attention,
    checkpointing: Checkpointing,
    selective_policy: str,
    counts: Mapping[str, int],
) -> tuple[Line, ...]:
    """Evaluate what the layers share: the copies that autocast drops only after the forward pass, mask, rotary angles."""
    lines: tuple[Line, ...] = ()
    if checkpointing == "full":
        # Autocast drops its copies only when the forward pass is over, needed or not.
        copies = sum(count * matmul_weights(shape.dims, kind) for kind, count in counts.items())
        lines += _cast("16-bit copies of the layers' weights", copies, shape, FORWARD)
        if attention == "eager" and how.counts_indices:
            lines += evaluate((table_rows.ATTENTION_MASK,), shape, WHOLE_TURN)
    if recipe.biased and how.counts_indices:
        num_biases = sum(counts.values()) * biases(shape.dims)
        lines += _cast("16-bit copies of the layers' biases", num_biases, shape, FORWARD)
    if recipe.rotary and how.counts_indices:
        angles = [row._replace(size=recipe.rotary_size) for row in table_rows.ROTARY]
        whole_layers = checkpointing == "full" or (
            checkpointing == "selective" and selective_policy == "layers"
        )
        ids = [table_rows.POSITION_IDS] if whole_layers else []
        lines += evaluate(angles + ids, shape, WHOLE_TURN)
    return lines


def _embedding_lines(recipe: Recipe, how: Implementation, shape: Shape) -> tuple[Line, ...]:
    drops = recipe.residual_dropout or not how.counts_indices
    rows = [row for row in how.embedding if row.when != "dropout" or drops]
    if how.counts_indices and not recipe.rotary:
        rows.append(table_rows.POSITION_IDS._replace(width=recipe.position_ids))
    if shape.dims.embedding_dropout is not None:
        shape = shape._replace(dims=replace(shape.dims, dropout=shape.dims.embedding_dropout))
    return evaluate(rows, shape, WHOLE_TURN)


def _head_lines(recipe: Recipe, how: Implementation, shape: Shape) -> tuple[Line, ...]:
    """Evaluate the final norm, the head's input and the labels; autocast holds an fp32 output and a copy of the head too."""
    lines = evaluate(tables.final_rows(recipe, how), shape)
    if not how.counts_indices:
        return lines
    labels = {"micro_batch": shape.micro_batch, "seq_len": shape.seq_len, "bytes_per_index": 8}
    num_weights = shape.dims.vocab_size * shape.dims.hidden_size
    return (
        *lines,
        *evaluate((table_rows.FINAL_OUTPUT,), shape, FORWARD),
        *_cast("16-bit copy of the head", num_weights, shape),
        Line("labels", apply(shifted_label_bytes, **labels), ("forward_end", "held")),
        Line("padded labels", apply(padded_label_bytes, **labels), FORWARD),
        *evaluate((table_rows.LOSS_SCALARS,), shape),
    )


def _known(kind: str, name: str, table: Mapping[str, T]) -> T:
    if name not in table:
        raise SpecError(f"{kind}: unknown {name!r}", hint=f"one of {', '.join(table)}")
    return table[name]


def activation_terms(
    dims: Dimensions,
    *,
    micro_batch: Count,
    seq_len: Count,
    tp: int = 1,
    cp: int = 1,
    sequence_parallel: bool = False,
    dtype: Dtype = "bf16",
    attention: Attention = "flash",
    checkpointing: Checkpointing = "none",
    selective_policy: str = "attention",
    selective_every: int = 2,
    implementation: str = "eager",
    loss: str = "eager",
    chunk_tokens: Count | None = None,
    device: Device = "cpu",
    num_layers: int | None = None,
    num_moe_layers: int | None = None,
    in_flight: Count = 1,
    has_embedding: bool = True,
    has_head: bool = True,
    partition_checkpoints: bool = False,
) -> ActivationEstimate:
    """Estimate the activations of one rank that holds `num_layers` layers (`num_moe_layers` of them with experts).

    `micro_batch`, `seq_len`, `chunk_tokens` and `in_flight` may be numpy integer arrays. `in_flight` is how many
    micro-batches' activations a pipeline stage holds; `has_embedding` and `has_head` say which stage it is.
    `partition_checkpoints` is ZeRO-R's Pa. Raises SpecError for a recipe, implementation or loss it does not know.
    """
    recipe = _known("recipe", dims.recipe, tables.RECIPES)
    how = _known("implementation", implementation, tables.IMPLEMENTATIONS)
    _known("loss", loss, LOSSES)
    sp = tp if sequence_parallel else 1
    tokens = micro_batch * ceil_div(seq_len, cp)
    shape = Shape(dims, micro_batch, ceil_div(seq_len, cp), seq_len, tokens, dtype, device, tp, sp)
    moe = dims.num_moe_layers if num_moe_layers is None else num_moe_layers
    total = dims.num_layers if num_layers is None else num_layers
    counts = {kind: count for kind, count in {"dense": total - moe, "moe": moe}.items() if count}
    layers, recomputed = _layers(
        recipe,
        how,
        shape,
        attention=attention,
        checkpointing=checkpointing,
        selective_policy=selective_policy,
        selective_every=selective_every,
        counts=counts,
        partitions=tp if partition_checkpoints else sp,
    )
    outside = _shared_lines(
        recipe,
        how,
        shape,
        attention=attention,
        checkpointing=checkpointing,
        selective_policy=selective_policy,
        counts=counts,
    )
    if has_embedding:
        # A pipeline's first stage holds these for every micro-batch in flight, like its layers.
        outside += _embedding_lines(recipe, how, shape._replace(tokens=tokens * in_flight))
    logits: tuple[Line, ...] = ()
    if has_head:
        outside += _head_lines(recipe, how, shape)
        logits = loss_lines(
            loss=loss,
            dtype=dtype,
            tokens=tokens,
            chunk_tokens=tokens if chunk_tokens is None else smallest(chunk_tokens, tokens),
            hidden_size=dims.hidden_size,
            vocab_size=dims.vocab_size,
            tensor_parallel=tp,
        )
    return ActivationEstimate(layers, recomputed, outside, logits, in_flight, checkpointing)
