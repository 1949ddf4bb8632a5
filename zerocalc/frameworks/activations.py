"""Activations as terms, the same for every framework: what the layers keep, what is recomputed, the logits.

The turn of forward and backward has three moments that can be its peak: while the loss is computed, while its
gradient is, and while the last layer is computed again. A phase of a framework is one of these moments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zerocalc.activations.tables import recipe_of
from zerocalc.activations.terms import activation_terms
from zerocalc.formulas.loss import Line, liger_chunk_tokens
from zerocalc.formulas.registry import Summed
from zerocalc.frameworks.terms import FORWARD_BACKWARD, Term
from zerocalc.units import ceil_div, smallest

if TYPE_CHECKING:
    from zerocalc.activations.estimate import ActivationEstimate, LayerActivations
    from zerocalc.layout import Dimensions
    from zerocalc.rank import RankView

MOMENTS = ("forward_end", "loss_backward", "recompute")


def in_flight(view: RankView) -> int:
    """Micro-batches whose activations a pipeline stage holds at once under 1F1B. Source: korthikanti-pipeline."""
    to_come = view.job.parallelism.pp - view.stage
    # One is never more than there are, which a recorded number of them need not find out.
    return to_come if to_come == 1 else smallest(view.job.workload.grad_accum, to_come)


def estimate_activations(
    view: RankView, settings: Mapping[str, Any], **overrides: Any
) -> ActivationEstimate | None:
    """The activations of this rank class, or None when the batch or the model's shape is not known."""
    work, parallelism, model = view.job.workload, view.job.parallelism, view.job.model.architecture
    if work.micro_batch is None or work.seq_len is None or model is None or model.dimensions is None:
        return None
    layers = [unit for unit in view.layout.units if unit.is_layer]
    moe = sum(unit.count for unit in layers if any(tensor.kind == "router" for tensor in unit.tensors))
    arguments: dict[str, Any] = {
        "micro_batch": work.micro_batch,
        "seq_len": work.seq_len,
        "tp": parallelism.tp,
        "cp": parallelism.cp,
        "sequence_parallel": work.sequence_parallel,
        "dtype": _dtype(view, settings),
        "attention": work.attention,
        "checkpointing": work.checkpointing,
        "selective_policy": settings.get("selective_policy", "attention"),
        "selective_every": settings.get("selective_every", 2),
        "implementation": settings["activations"],
        "loss": settings["loss"],
        "chunk_tokens": settings["loss_chunk_tokens"] or _usual_chunk(view, model.dimensions),
        "device": settings["activation_device"],
        "num_layers": sum(unit.count for unit in layers),
        "num_moe_layers": moe,
        "in_flight": in_flight(view),
        "has_embedding": view.stage == 0,
        "has_head": view.is_last_stage,
        "partition_checkpoints": settings["partition_activations"],
    }
    dims = model.dimensions
    dims = replace(dims, recipe=recipe_of(model.model_type, dims.recipe))
    return activation_terms(dims, **arguments | overrides)


def _usual_chunk(view: RankView, dims: Dimensions) -> int:
    """Tokens per chunk where none are given: Liger's own choice."""
    work = view.job.workload
    tokens = (work.micro_batch or 1) * ceil_div(work.seq_len or 1, view.job.parallelism.cp)
    return liger_chunk_tokens(tokens=tokens, hidden_size=dims.hidden_size, vocab_size=dims.vocab_size)


def _dtype(view: RankView, settings: Mapping[str, Any]) -> Any:
    if settings["autocast"]:
        return "autocast"
    return "fp32" if view.job.precision.param_dtype in {"fp32", "fp64"} else "bf16"


def peak_moment(estimate: ActivationEstimate) -> str:
    """The moment of the turn at which activations are largest (the first of equals)."""
    sizes = (estimate.forward_peak_bytes, estimate.loss_backward_peak_bytes, estimate.backward_peak_bytes)
    return MOMENTS[max(range(3), key=lambda index: sizes[index])]


def activation_terms_of(
    estimate: ActivationEstimate, settings: Mapping[str, Any], phases: Mapping[str, str] | None = None
) -> Iterator[Term]:
    """The terms of an estimate. `phases` names the framework's phase for each moment that it models.

    Without it the largest moment is the phase `forward_backward`.
    """
    named = phases or {peak_moment(estimate): FORWARD_BACKWARD}
    everywhere = tuple(dict.fromkeys(named.values()))
    on_host = settings["cpu_checkpointing"] and estimate.checkpointing == "full"
    name = "activation_checkpoints" if estimate.checkpointing == "full" else "activations"
    saved = _layer_parts(estimate.layers, estimate.in_flight)
    if saved:
        yield Term(name=name, amount=Summed(saved), phases=everywhere, tier="cpu" if on_host else "gpu")
    if "recompute" in named and (again := _largest(estimate.recomputed)):
        yield Term(
            name="recomputed_layer", amount=Summed(_layer_parts((again,), 1)), phases=(named["recompute"],)
        )
    yield from _by_moment("outside_layers", estimate.outside, named)
    yield from _by_moment("logits", estimate.loss, named)


def _largest(layers: Iterable[LayerActivations]) -> LayerActivations | None:
    return max(layers, key=lambda layer: layer.bytes, default=None)


def _layer_parts(layers: Iterable[LayerActivations], times: int) -> tuple[tuple[str, Any, Any], ...]:
    return tuple((line.name, layer.count * times, line.applied) for layer in layers for line in layer.lines)


def _by_moment(name: str, lines: Iterable[Line], named: Mapping[str, str]) -> Iterator[Term]:
    """One term per set of phases, so that tensors which never meet are never added."""
    groups: dict[tuple[str, ...], list[Line]] = {}
    for line in lines:
        live = tuple(dict.fromkeys(phase for moment, phase in named.items() if _alive(line, moment)))
        groups.setdefault(live, []).append(line)
    for live, members in groups.items():
        if live:
            yield Term(
                name=name, amount=Summed(tuple((line.name, 1, line.applied) for line in members)), phases=live
            )


def _alive(line: Line, moment: str) -> bool:
    """The loss's own tensors are gone by the time a layer is computed again."""
    return moment in line.phases
