"""Where a number comes from: the formula, the numbers in it, their origin, and the source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from zerocalc.errors import unknown_name
from zerocalc.evaluate import evaluate, excluded_of, heaviest, inapplicable, plans, request_of
from zerocalc.results import ExplainedInput, ExplainedLine, Explanation, StrategyResult
from zerocalc.sources import SOURCES
from zerocalc.strategies import COMPARED

if TYPE_CHECKING:
    from zerocalc.frameworks.terms import Collective, Evaluated, Plan, Term, Traffic
    from zerocalc.specs.job import Job

_ORIGIN_OF_INPUT = {
    "shards": ("world_size", "tp", "pp", "cp", "sharding_group_size"),
    "ranks": ("world_size", "tp", "pp", "cp", "sharding_group_size"),
    "num_params": ("num_params",),
    "count": ("grad_accum",),
}
_BYTES_OF_STATE = {
    "params": "param_dtype",
    "grads": "grad_dtype",
    "optimizer_states": "optimizer_bytes_per_param",
}


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
    "model_states_bytes": "model_states", "sent_bytes_per_rank": "sent",
}  # fmt: skip
QUANTITIES = (*_TERMS, "sent", "links", "offload")


def explain(job: Job, quantity: str, *, strategies: Sequence[str] = COMPARED) -> Explanation:
    """Explain one quantity under each strategy that can do the job.

    `quantity` is a state (`params`, `grads`, `optimizer_states`), `model_states`, `floor`, `peak`, `host`, `nvme`,
    `sent`, `links`, or the name of one term; `offload` lists ZeRO-Offload's own choices. Raises UnknownNameError for anything else.
    """
    wanted = _ALIASES.get(quantity.lower().replace("-", "_"), quantity.lower().replace("-", "_"))
    if wanted == "offload":
        return _explain_offload(job)
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
        excluded += excluded_of(plan)
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


def _explain_offload(job: Job) -> Explanation:
    """ZeRO-Offload's table of what may leave the GPU, and what each way to do it moves over PCIe."""
    from zerocalc.formulas import offload as off
    from zerocalc.formulas.registry import apply

    num_params = job.model.num_params
    lines = [
        _line(
            job,
            apply(off.offload_gpu_bytes, num_params=num_params, bytes_per_param=row.gpu_bytes_per_param),
            name="kept_on_gpu",
            part=name,
            tier="gpu",
        )
        for name, row in off.OFFLOAD_PLACEMENTS.items()
    ]
    lines += [
        _line(
            job,
            apply(
                off.offload_traffic_bytes,
                num_params=num_params,
                ranks=1,
                bytes_per_micro_step=row.to_host_per_micro_step + row.from_host_per_micro_step,
                micro_steps=job.workload.grad_accum,
                bytes_per_step=row.to_host_per_step + row.from_host_per_step,
            ),
            name="moved_per_step",
            part=name,
            tier="host",
        )
        for name, row in off.OFFLOAD_TRAFFIC.items()
    ]
    return Explanation(
        kind="explain",
        quantity="offload",
        request=request_of(job),
        lines=lines,
        totals={},
        assumptions=["one replica in all: divide by N_d for a rank's share"],
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
    return _line(
        job, term.amount, name=term.name, part=term.part, tier=term.tier, state=term.state, phases=term.phases
    )


def _collective_line(job: Job, row: Collective) -> ExplainedLine:
    return _line(
        job, row.sent, name=f"{row.op}({row.tensor})", part=row.part, tier="wire", phases=(row.phase,)
    )


def _traffic_line(job: Job, row: Traffic) -> ExplainedLine:
    return _line(
        job, row.amount, name=f"{row.direction}({row.name})", part="dense", tier=row.link, state=row.name
    )


def _line(
    job: Job,
    amount: Evaluated,
    *,
    name: str,
    part: str,
    tier: str,
    state: str | None = None,
    phases: Sequence[str] = (),
) -> ExplainedLine:
    source = SOURCES[amount.source]
    return ExplainedLine(
        strategy=job.strategy,
        name=name,
        part=part,
        tier=tier,
        value=amount.value,
        unit="byte",
        formula=amount.expression,
        substituted=amount.substituted(),
        inputs=[
            ExplainedInput(name=key, value=value, origin=_origin(job, key, state))
            for key, value in amount.inputs.items()
        ],
        source=amount.source,
        citation=f"{source.title}, {source.section} ({source.url})",
        phases=list(phases),
    )


def _origin(job: Job, key: str, state: str | None) -> str:
    """Where an input came from: the words of the job it follows from, each with its origin."""
    if key.startswith("bytes_per") and state in _BYTES_OF_STATE:
        words: Sequence[str] = (_BYTES_OF_STATE[state],)
    else:
        words = _ORIGIN_OF_INPUT.get(key, ())
    known = {word: job.origins[word] for word in words if job.origins.get(word, "default") != "default"}
    if not known:
        return "default" if words else "derived"
    return ", ".join(f"{word} from {origin}" for word, origin in known.items())
