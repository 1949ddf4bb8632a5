"""Why two frameworks' answers differ, line by line: which terms only one holds, and what the shared ones count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from zerocalc.errors import UsageError
from zerocalc.evaluate import evaluate, excluded_of, inapplicable, request_of, with_framework
from zerocalc.results.explanation import Contrast, ContrastLine, ContrastSide
from zerocalc.sources import SOURCES
from zerocalc.strategies import COMPARED

if TYPE_CHECKING:
    from zerocalc.frameworks.terms import Plan, Term
    from zerocalc.results import StrategyResult
    from zerocalc.specs.job import Job

_CAUSES = {
    "shards": "ranks that share it",
    "num_params": "elements, padding included",
}


def contrast(job: Job, against: str, *, strategies: Sequence[str] = COMPARED) -> Contrast:
    """Line up the terms that two frameworks hold on the GPU at their peaks, and say what each difference comes from.

    `job.framework` is one side, `against` the other. Raises UsageError when no strategy is common to both.
    """
    if against == job.framework:
        raise UsageError(f"--against {against}: that is the framework explained", hint="name another one")
    lines: list[ContrastLine] = []
    assumptions, excluded, warnings = list(job.assumptions), list[str](), list(job.warnings)
    for strategy in strategies:
        pair = [_variant(job, strategy, framework) for framework in (job.framework, against)]
        if any(inapplicable(variant) for variant in pair):
            continue
        answers = [evaluate(variant) for variant in pair]
        lines += _lines(strategy, pair, answers)
        for framework, (_, plan) in zip((job.framework, against), answers, strict=True):
            assumptions += [f"{framework}: {line}" for line in plan.assumptions]
            excluded += [f"{framework}: {line}" for line in excluded_of(job, plan)]
            warnings += [f"{framework}: {line}" for line in plan.warnings]
    if not lines:
        raise UsageError(f"no strategy is offered by both {job.framework} and {against}")
    return Contrast(
        kind="contrast",
        framework=job.framework,
        against=against,
        request=request_of(job),
        lines=lines,
        assumptions=list(dict.fromkeys(assumptions)),
        excluded=list(dict.fromkeys(excluded)),
        warnings=list(dict.fromkeys(warnings)),
    )


def _variant(job: Job, strategy: str, framework: str) -> Job:
    return with_framework(job.model_copy(update={"strategy": strategy}), framework)


def _lines(
    strategy: str, pair: list[Job], answers: list[tuple[StrategyResult, Plan]]
) -> Iterator[ContrastLine]:
    """One line per kind of term, then the total."""
    ours, theirs = (_held(result, plan) for result, plan in answers)
    for name in dict.fromkeys([*ours, *theirs]):
        mine, other = ours.get(name, []), theirs.get(name, [])
        held = [sum(term.bytes for term in terms) for terms in (mine, other)]
        yield ContrastLine(
            strategy=strategy,
            name=name,
            bytes=held[0],
            against_bytes=held[1],
            difference_bytes=held[1] - held[0],
            because=_because(pair, name, mine, other),
            sides=[
                _side(term, variant)
                for variant, terms in zip(pair, (mine, other), strict=True)
                for term in terms
            ],
        )
    totals = [sum(term.bytes for terms in side.values() for term in terms) for side in (ours, theirs)]
    phases = [result.memory.gpu.peak_phase for result, _ in answers if result.memory is not None]
    yield ContrastLine(
        strategy=strategy,
        name="total",
        bytes=totals[0],
        against_bytes=totals[1],
        difference_bytes=totals[1] - totals[0],
        because=f"the peaks: {pair[0].framework} in {phases[0]}, {pair[1].framework} in {phases[1]}",
        sides=[],
    )


def _held(result: StrategyResult, plan: Plan) -> dict[str, list[Term]]:
    """The GPU's terms at the peak, by state where they have one, else by name."""
    assert result.memory is not None
    phase = result.memory.gpu.peak_phase
    groups: dict[str, list[Term]] = {}
    for term in plan.terms:
        if term.tier == "gpu" and phase in term.phases:
            groups.setdefault(term.state or term.name, []).append(term)
    return groups


def _because(pair: list[Job], name: str, mine: list[Term], other: list[Term]) -> str:
    """What the difference comes from, read off the two sides' formulas."""
    ours, theirs = (variant.framework for variant in pair)
    if not mine or not other:
        return f"only {ours if mine else theirs} counts {name} at its peak"
    if sum(term.bytes for term in mine) == sum(term.bytes for term in other):
        return "the same"
    per_param = _per_param(pair, mine, other)
    if len(mine) == len(other) == 1:
        causes = [
            cause for key, label in _CAUSES.items() if (cause := _differing(key, label, pair, mine, other))
        ]
        return "; ".join([per_param, *causes])
    return f"{per_param}; {ours}: {_told(mine)}; {theirs}: {_told(other)}"


def _per_param(pair: list[Job], mine: list[Term], other: list[Term]) -> str:
    """What a rank holds, spread over every parameter of the model."""
    shown = [
        f"{variant.framework} {sum(term.bytes for term in terms) / variant.model.num_params:.4g}"
        for variant, terms in zip(pair, (mine, other), strict=True)
    ]
    return f"bytes per parameter of the model: {', '.join(shown)}"


def _differing(key: str, label: str, pair: list[Job], mine: list[Term], other: list[Term]) -> str | None:
    values: list[Any] = [terms[0].amount.inputs.get(key) for terms in (mine, other)]
    if None in values or values[0] == values[1]:
        return None
    return f"{label}: {pair[0].framework} {values[0]:,}, {pair[1].framework} {values[1]:,}"


def _told(terms: list[Term]) -> str:
    return " + ".join(f"{term.name} {term.bytes:,}" for term in terms)


def _side(term: Term, job: Job) -> ContrastSide:
    source = SOURCES[term.amount.source]
    return ContrastSide(
        framework=job.framework,
        name=term.name,
        part=term.part,
        bytes=term.bytes,
        formula=term.amount.expression,
        substituted=term.amount.substituted(),
        source=term.amount.source,
        citation=f"{source.title}, {source.section} ({source.url})",
    )
