"""`explain activations`: every tensor that the forward pass keeps, and what is live at each moment of the turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocalc.errors import UsageError
from zerocalc.evaluate import heaviest, plans, request_of
from zerocalc.frameworks import framework_named, prepared
from zerocalc.frameworks.activations import estimate_activations
from zerocalc.frameworks.settings import resolve_settings
from zerocalc.questions.lines import line_of
from zerocalc.results.explanation import ExplainedLine, Explanation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from zerocalc.activations.estimate import ActivationEstimate
    from zerocalc.formulas.loss import Line
    from zerocalc.specs.job import Job


def knows_activations(job: Job) -> bool:
    """Whether the framework's activations follow the settings that all but Megatron share."""
    return any(row.name == "activations" for row in framework_named(job.framework).SETTINGS)


def explain_activations(job: Job) -> Explanation:
    """One line per saved tensor of one layer of each kind and of what stands outside the layers; sums as totals.

    Raises UsageError where the batch or the model's shape is not known.
    """
    view, plan = heaviest(plans(job))
    settings, _ = resolve_settings(
        job.framework, framework_named(job.framework).SETTINGS, prepared(job).settings, job.strategy
    )
    estimate = estimate_activations(view, settings)
    if estimate is None:
        raise UsageError(
            "activations need the batch and the model's shape",
            hint="give --micro-batch and --seq-len, and a preset, a config.json or LxHxA as MODEL",
        )
    return Explanation(
        kind="explain",
        quantity="activations",
        request=request_of(job),
        lines=list(_lines(job, estimate)),
        totals=_totals(estimate),
        assumptions=[*job.assumptions, *plan.assumptions],
        warnings=[*job.warnings, *plan.warnings],
    )


def _lines(job: Job, estimate: ActivationEstimate) -> Iterator[ExplainedLine]:
    for layer in estimate.layers:
        yield from _kept(job, layer.lines, f"one {layer.kind} layer of {layer.count}")
    for layer in estimate.recomputed:
        yield from _kept(job, layer.lines, f"one {layer.kind} layer, computed again")
    yield from _kept(job, estimate.outside, "outside the layers")
    yield from _kept(job, estimate.loss, "loss")


def _kept(job: Job, lines: Iterable[Line], part: str) -> Iterator[ExplainedLine]:
    for line in lines:
        yield line_of(job, line.applied, name=line.name, part=part, tier="gpu")


def _totals(estimate: ActivationEstimate) -> dict[str, int]:
    """Bytes of a layer of each kind, of all layers, and of everything at each moment."""
    moments = {
        "loss": estimate.forward_peak_bytes,
        "end_of_forward": estimate.held_bytes,
        "loss_backward": estimate.loss_backward_peak_bytes,
    }
    if estimate.recomputed:
        moments["recompute"] = estimate.backward_peak_bytes
    return {
        **{f"one_{layer.kind}_layer": int(layer.bytes) for layer in estimate.layers},
        "all_layers": int(estimate.saved_bytes),
        **{name: int(total) for name, total in moments.items()},
    }
