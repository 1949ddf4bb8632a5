"""Where a number comes from: the formula, the numbers in it, their origin, and the source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from zerocalc.errors import unknown_name
from zerocalc.evaluate import evaluate, excluded_of, heaviest, inapplicable, plans, request_of
from zerocalc.questions.lines import line_of
from zerocalc.results.explanation import ExplainedLine, Explanation
from zerocalc.strategies import COMPARED

if TYPE_CHECKING:
    from zerocalc.frameworks.terms import Collective, Plan, Term, Traffic
    from zerocalc.results import StrategyResult
    from zerocalc.specs.job import Job


def _state(*names: str) -> Callable[[Term], bool]:
    return lambda term: term.state in names


_TERMS: dict[str, Callable[[Term], bool]] = {
    "params": _state("params"),
    "grads": _state("grads"),
    "optimizer_states": _state("optimizer_states"),
    "model_states": lambda term: term.state is not None,
    "floor": lambda term: term.state is not None and not term.falls,
    "host": lambda term: term.tier == "cpu",
    "nvme": lambda term: term.tier == "nvme",
    "peak": lambda term: term.tier == "gpu",
}
_ALIASES = {
    "total": "model_states", "states": "model_states", "optimizer": "optimizer_states", "gradients": "grads",
    "parameters": "params", "communication": "sent", "volume": "sent", "wire": "sent", "memory": "peak",
    "fits": "peak", "cpu": "host", "traffic": "links", "peak_bytes": "peak", "floor_bytes": "floor",
    "time": "step", "seconds": "step", "step_s": "step", "model_states_bytes": "model_states", "sent_bytes_per_rank": "sent",
}  # fmt: skip
QUANTITIES = (*_TERMS, "sent", "links", "offload", "activations", "step")


def explain(job: Job, quantity: str, *, strategies: Sequence[str] = COMPARED) -> Explanation:
    """Explain one quantity under each strategy that can do the job.

    `quantity` is a state (`params`, `grads`, `optimizer_states`), `model_states`, `floor`, `peak`, `host`, `nvme`,
    `sent`, `links`, or the name of one term; `offload` gives the tables of ZeRO-Offload and ZeRO-Infinity, `activations`
    every saved tensor, `step` the seconds of a step. Raises UnknownNameError for anything else.
    """
    wanted = _ALIASES.get(quantity.lower().replace("-", "_"), quantity.lower().replace("-", "_"))
    if wanted == "offload":
        from zerocalc.questions.offload import explain_offload

        return explain_offload(job)
    if wanted == "step":
        from zerocalc.questions.step import explain_step

        return explain_step(job, strategies=strategies)
    if wanted == "activations":
        from zerocalc.questions.activations import explain_activations, knows_activations

        if knows_activations(job):
            return explain_activations(job)
    variants = [job.model_copy(update={"strategy": strategy}) for strategy in strategies]
    variants = [variant for variant in variants if not inapplicable(variant)] or variants[:1]
    lines: list[ExplainedLine] = []
    totals: dict[str, Any] = {}
    assumptions, excluded, warnings = list(job.assumptions), list[str](), list(job.warnings)
    for variant in variants:
        result, plan = evaluate(variant)
        mine = list(_lines(variant, plan, result, wanted))
        lines += mine
        totals[variant.strategy] = sum(line.value for line in mine)
        assumptions += plan.assumptions
        excluded += excluded_of(job, plan)
        warnings += plan.warnings
    if not lines and wanted not in QUANTITIES:
        names = sorted({term.name for variant in variants for term in heaviest(plans(variant))[1].terms})
        raise unknown_name(
            "quantity", quantity, [*QUANTITIES, *_ALIASES, *names], hint=f"one of {', '.join(QUANTITIES)}"
        )
    return Explanation(
        kind="explain",
        quantity=wanted,
        request=request_of(job),
        lines=lines,
        totals=totals,
        assumptions=list(dict.fromkeys(assumptions)),
        excluded=list(dict.fromkeys(excluded)),
        warnings=list(dict.fromkeys(warnings)),
    )


def _lines(job: Job, plan: Plan, result: StrategyResult, wanted: str) -> Iterator[ExplainedLine]:
    if wanted == "sent":
        yield from (_collective_line(job, row) for row in plan.collectives)
    elif wanted == "links":
        yield from (_traffic_line(job, row) for row in plan.traffic)
    else:
        chosen = _TERMS.get(wanted) or _named(wanted)
        assert result.memory is not None
        for term in plan.terms:
            live = wanted != "peak" or result.memory.gpu.peak_phase in term.phases
            if chosen(term) and live:
                yield _term_line(job, term)


def _named(name: str) -> Callable[[Term], bool]:
    return lambda term: term.name == name


def _term_line(job: Job, term: Term) -> ExplainedLine:
    return line_of(
        job, term.amount, name=term.name, part=term.part, tier=term.tier, state=term.state, phases=term.phases
    )


def _collective_line(job: Job, row: Collective) -> ExplainedLine:
    return line_of(
        job, row.sent, name=f"{row.op}({row.tensor})", part=row.part, tier="wire", phases=(row.phase,)
    )


def _traffic_line(job: Job, row: Traffic) -> ExplainedLine:
    return line_of(
        job, row.amount, name=f"{row.direction}({row.name})", part="dense", tier=row.link, state=row.name
    )
