"""ZeRO-R on top of the activations: checkpoints split over tensor-parallel ranks (Pa) and moved to the host (Pa+cpu)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocalc.formulas.communication import leg_sent_bytes, padded_bytes
from zerocalc.formulas.registry import apply
from zerocalc.formulas.states import state_bytes
from zerocalc.frameworks.activations import activation_terms_of, estimate_activations
from zerocalc.frameworks.terms import Collective, Plan, Traffic

if TYPE_CHECKING:
    from zerocalc.activations.estimate import ActivationEstimate
    from zerocalc.rank import RankView


def add_activations(view: RankView, answer: Plan, settings: dict[str, Any]) -> None:
    """Activations and logits, where the batch and the model's shape are known."""
    if (estimate := estimate_activations(view, settings)) is not None:
        answer.terms += activation_terms_of(estimate, settings)
        _partitioned_checkpoints(view, answer, estimate, settings)


def _partitioned_checkpoints(
    view: RankView, answer: Plan, activations: ActivationEstimate, settings: dict[str, Any]
) -> None:
    """ZeRO-R: what Pa gathers among tensor-parallel ranks, and what Pa+cpu moves over PCIe, each checkpoint once."""
    kept = [(layer.count, line.applied) for layer in activations.layers for line in layer.lines]
    if activations.checkpointing != "full" or not kept:
        return
    tp, accum = view.job.parallelism.tp, view.job.workload.grad_accum
    shard = kept[0][1].value
    layers = sum(count for count, _ in kept)
    if settings["partition_activations"] and tp > 1:
        full = apply(padded_bytes, num_params=shard * tp, element_bytes=1, ranks=tp)
        sent = apply(leg_sent_bytes, count=layers * accum, full_bytes=full.value, ranks=tp)
        answer.collectives.append(
            Collective(
                op="all_gather", tensor="activations", dtype=view.job.precision.param_dtype, group_size=tp,
                count=layers * accum, full=full, sent=sent, phase="backward", group="tensor_parallel",
            )
        )  # fmt: skip
    if settings["cpu_checkpointing"]:
        amount = apply(state_bytes, num_params=shard * layers, bytes_per_param=accum, shards=1)
        for direction in ("to_host", "from_host"):
            answer.traffic.append(
                Traffic(link="host", direction=direction, name="activation_checkpoints", amount=amount)
            )
