"""DeepSpeed as shipped (0.19): what its engine really holds and sends, stage by stage, option by option.

The papers' ideal is `paper`; this differs from it where the code does: flat groups and tensors are padded, small
parameters stay whole at stage 3, gradients of stages 1 and 2 are all-reduced, buckets are allocated whole.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zerocalc.frameworks.activations import MOMENTS, activation_terms_of, estimate_activations
from zerocalc.frameworks.deepspeed import stage0, stage3, stage3_comm, stage12
from zerocalc.frameworks.deepspeed.engine import (
    BACKWARD,
    FORWARD,
    SIXTEEN_BITS,
    STAGES,
    Engine,
    engine_of,
    is_packed,
    packing_of,
)
from zerocalc.frameworks.deepspeed.gathers import Gathers, gathers_of
from zerocalc.frameworks.deepspeed.settings import SETTINGS, WITHOUT_EFFECT
from zerocalc.frameworks.deepspeed.states import module_buffers, other_models
from zerocalc.frameworks.deepspeed.traffic import traffic
from zerocalc.frameworks.settings import resolve_settings
from zerocalc.frameworks.terms import FORWARD_BACKWARD, Plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zerocalc.rank import RankView

__all__ = ["SETTINGS", "STRATEGIES", "plan"]

STRATEGIES = frozenset(STAGES)
_ZEROPP = ("zero_hpz_partition_size", "zero_quantized_weights", "zero_quantized_gradients")


def plan(view: RankView) -> Plan:
    """Terms, collectives and traffic of one rank class under DeepSpeed's engine."""
    settings, warnings = resolve_settings("deepspeed", SETTINGS, view.job.settings, view.strategy.name)
    answer = Plan(warnings=warnings)
    engine = engine_of(view, _with_zeropp(view, settings, answer))
    gathers: Gathers | None = None
    if engine.stage == 3:
        gathers = gathers_of(engine, stage3.persistent_params(engine))
        answer.terms += stage3.terms(engine, gathers)
        answer.collectives += stage3_comm.collectives(engine, gathers)
    else:
        stage = stage12 if engine.stage else stage0
        answer.terms += stage.terms(engine)
        answer.collectives += stage.collectives(engine)
    answer.terms += module_buffers(engine)
    answer.terms += other_models(engine)
    answer.traffic += traffic(engine, gathers)
    _activations(engine, answer)
    _say(engine, answer)
    return answer


def _with_zeropp(view: RankView, settings: dict[str, Any], answer: Plan) -> Mapping[str, Any]:
    """ZeRO++ without any of its three settings means all of them, a secondary copy per node."""
    if view.strategy.name == "zeropp" and all(settings[name] is None for name in _ZEROPP):
        per_node = view.job.parallelism.gpus_per_node or 1
        settings |= dict(zip(_ZEROPP, (per_node, True, True), strict=True))
        answer.assumptions.append(
            f"ZeRO++: zero_hpz_partition_size = {per_node}, quantized weights and gradients, as none of them was set"
        )
    return settings


def _activations(engine: Engine, answer: Plan) -> None:
    """Activations at the larger moment of the loss, and while the first layer of the backward pass is computed."""
    estimate = estimate_activations(engine.view, engine.settings)
    if estimate is None:
        return
    at_loss = max(
        MOMENTS[:2],
        key=lambda moment: {
            MOMENTS[0]: estimate.forward_peak_bytes,
            MOMENTS[1]: estimate.loss_backward_peak_bytes,
        }[moment],
    )
    phases = {at_loss: FORWARD_BACKWARD, MOMENTS[2]: BACKWARD}
    for term in activation_terms_of(estimate, engine.settings, phases):
        grows = BACKWARD in term.phases and term.name != "recomputed_layer"
        answer.terms.append(replace(term, phases=(FORWARD, *term.phases)) if grows else term)


def _say(engine: Engine, answer: Plan) -> None:
    """What was assumed, what is not counted, which given settings do nothing here."""
    given = engine.view.job.settings
    answer.warnings += [
        f"{name} changes nothing: {why}" for name, why in WITHOUT_EFFECT.items() if name in given
    ]
    if (
        engine.stage in (1, 2)
        and "reduce_scatter" in given
        and engine.settings["use_multi_rank_bucket_allreduce"]
    ):
        answer.warnings.append(
            "reduce_scatter changes nothing: with use_multi_rank_bucket_allreduce buckets are all-reduced whole"
        )
    if engine.param_dtype not in SIXTEEN_BITS and engine.stage:
        answer.assumptions.append(
            "DeepSpeed keeps an fp32 master copy beside fp32 parameters in stages 1 to 3"
        )
    if engine.view.job.offload.optimizer == "nvme" and engine.stage < 3:
        answer.warnings.append("offload_optimizer to nvme acts as cpu below stage 3")
    if engine.stage == 3 and is_packed(engine.view) and any(not group.trainable for group in engine.groups):
        held, stored = packing_of(engine.view)
        answer.assumptions.append(
            f"the frozen {held} values are packed into {stored} elements (bnb_4bit_quant_storage), and so partitioned and "
            "gathered; with any other storage type stage 3 does not shard them"
        )
    if engine.stage == 3 and not engine.shapes_known:
        answer.excluded.append("persistent parameters, prefetch and per-tensor padding (needs tensor shapes)")
    if any(group.ranks == 1 for group in engine.trained) and engine.stage:
        answer.warnings.append(f"{engine.view.strategy.name} over a group of one: nothing is sharded")
    answer.excluded.append("page-locked host allocations rounded up by torch")
