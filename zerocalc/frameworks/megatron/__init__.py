"""Megatron-LM (core): the distributed optimizer, tensor, pipeline, context and expert parallelism.

A rank's parameters and main gradients live in contiguous buffers and are never sharded over data-parallel ranks; only
optimizer states are (`zero1`, Megatron's `use_distributed_optimizer`), or nothing is (`ddp`). Gradients of bf16
parameters are kept and reduced in fp32. Megatron's own FSDP is another implementation and not described here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocalc.frameworks.megatron.activations import activation_plan
from zerocalc.frameworks.megatron.communication import collectives
from zerocalc.frameworks.megatron.placement import prepare
from zerocalc.frameworks.megatron.settings import SETTINGS, STRATEGIES, grad_dtype, resolved
from zerocalc.frameworks.megatron.states import state_terms, working_terms, workspace_term
from zerocalc.frameworks.terms import Plan

if TYPE_CHECKING:
    from zerocalc.rank import RankView

__all__ = ["SETTINGS", "STRATEGIES", "plan", "prepare"]


def plan(view: RankView) -> Plan:
    """Terms and collectives of one rank class."""
    settings, warnings = resolved(view.job)
    answer = Plan(warnings=warnings)
    for part in view.parts:
        answer.terms += state_terms(view, part, settings)
    answer.terms += working_terms(view, settings)
    if activations := activation_plan(view, settings, answer):
        answer.terms += [*activations, workspace_term(settings)]
    collectives(view, settings, answer)
    _say(view, answer, grad_dtype(view.job, settings))
    return answer


def _say(view: RankView, answer: Plan, grads: str) -> None:
    """What was assumed, what is not counted."""
    answer.assumptions.append(
        f"Megatron keeps main gradients whole on every rank, in {grads}, between steps too"
    )
    if view.shape_known:
        answer.assumptions.append(
            "parameters are packed into buffers: each starts at a multiple of 64 elements with the distributed optimizer, "
            "and buckets end at a multiple of the sharding group and of 128"
        )
        dimensions = view.job.model.architecture.dimensions if view.job.model.architecture else None
        if dimensions is not None:
            answer.assumptions.append(f"the vocabulary is padded to {dimensions.vocab_size:,} rows")
    if view.job.parallelism.pp > 1:
        answer.excluded.append("activations sent between pipeline stages")
    if view.job.parallelism.ep > 1:
        answer.excluded.append("tokens sent between expert-parallel ranks")
    if view.strategy.shards and view.parts[0].shard_ranks == 1:
        answer.warnings.append("the distributed optimizer over one rank shards nothing")
