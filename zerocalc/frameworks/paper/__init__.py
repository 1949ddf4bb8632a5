"""The papers' ideal: ZeRO's model states, the least communication, offload by its minimum of bytes moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocalc import strategies
from zerocalc.frameworks.paper.memory import constant_buffer, secondary_params, state_terms, working_memory
from zerocalc.frameworks.paper.settings import SETTINGS, ZEROPP
from zerocalc.frameworks.paper.wire import collectives
from zerocalc.frameworks.settings import resolve_settings
from zerocalc.frameworks.terms import Plan

if TYPE_CHECKING:
    from zerocalc.rank import RankView

__all__ = ["SETTINGS", "STRATEGIES", "plan"]

STRATEGIES = frozenset(strategies.STRATEGIES)


def plan(view: RankView) -> Plan:
    """Terms, collectives and traffic of one rank class under the papers' model."""
    settings, warnings = resolve_settings("paper", SETTINGS, view.job.settings, view.strategy.name)
    if view.strategy.name == "zeropp" and settings["hpz"] is None:
        settings["hpz"] = view.job.parallelism.gpus_per_node or 1
    answer = Plan(warnings=warnings)
    for part in view.parts:
        answer.terms += state_terms(view, part)
        answer.terms += secondary_params(view, part, settings)
        answer.collectives += collectives(view, part, settings)
    answer.terms += working_memory(view, settings)
    answer.terms += constant_buffer(settings)
    if view.job.workload.micro_batch is not None:
        from zerocalc.frameworks.paper.activations import add_activations

        add_activations(view, answer, settings)
    if any(term.tier != "gpu" for term in answer.terms):
        from zerocalc.frameworks.paper.traffic import traffic

        answer.traffic += traffic(view, answer.terms)
    _say(view, answer, settings)
    return answer


def _say(view: RankView, answer: Plan, settings: dict[str, Any]) -> None:
    """What was assumed, what is not counted."""
    parallelism = view.job.parallelism
    if "params" in view.strategy.shards and not view.shape_known:
        answer.excluded.append(
            "gathered working memory of sharded parameters (needs tensor shapes, not just a count)"
        )
    for part in view.parts:
        if view.strategy.shards and part.shard_ranks == 1 and not part.forward_only:
            answer.warnings.append(
                f"{view.strategy.name} over a group of one: the {part.name} states of "
                f"{parallelism.world_size} GPU(s) are not sharded"
            )
    if (gathered := next((t for t in answer.terms if t.name.startswith("gathered_")), None)) is not None:
        what = "operator (ZeRO-Infinity's MSWM)" if gathered.name == "gathered_operator" else "unit"
        answer.assumptions.append(f"gathered working memory is the largest {what}, parameters and gradients")
    if any(term.name.startswith("activation") for term in answer.terms):
        answer.assumptions.append(
            f"activations of {settings['activations']} kernels with {view.job.workload.attention} attention on "
            f"{settings['activation_device']}, loss {settings['loss']} (--set activations=, activation_device=, loss=)"
        )
    if view.strategy.name in ZEROPP:
        answer.assumptions.append(
            f"ZeRO++: hpz = {settings['hpz']}, one fp32 scale per {settings['quant_block']} elements "
            "(the paper prints no block size)"
        )
        if settings["hpz"] > 1 and view.parts[0].shard_ranks % settings["hpz"]:
            answer.warnings.append(
                f"hpz = {settings['hpz']} does not divide {view.parts[0].shard_ranks} ranks"
            )
