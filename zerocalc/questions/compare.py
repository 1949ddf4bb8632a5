"""The default question: the strategies side by side, and the line that decides between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocalc.errors import UsageError, unknown_name
from zerocalc.evaluate import evaluate, excluded_of, inapplicable, request_of, with_framework
from zerocalc.formulas.states import floor_line_bytes
from zerocalc.frameworks import framework_named
from zerocalc.frameworks.settings import WHERE_LISTED, Idle
from zerocalc.questions.crossover import crossovers
from zerocalc.questions.solve import smallest_degree
from zerocalc.rank import rank_views
from zerocalc.results import DividingLine, Estimates, OffloadResult, StrategyResult
from zerocalc.strategies import COMPARED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zerocalc.frameworks.terms import Plan
    from zerocalc.specs.job import Job


def compare(
    job: Job, *, strategies: Sequence[str] = COMPARED, frameworks: Sequence[str] | None = None
) -> Estimates:
    """The same job under several strategies, and frameworks when named.

    A strategy that cannot do what is asked keeps its row, with the reason. Raises UsageError when none can.
    """
    results: list[StrategyResult] = []
    plans: list[Plan] = []
    excluded: list[str] = []
    if frameworks:
        _check_settings(job, frameworks)
    for strategy in strategies:
        for framework in frameworks or (job.framework,):
            variant = job.model_copy(update={"strategy": strategy})
            variant = with_framework(variant, framework) if frameworks else variant
            if reason := inapplicable(variant):
                results.append(_refused(variant, reason))
                continue
            result, plan = evaluate(variant)
            results.append(result)
            plans.append(plan)
            excluded += excluded_of(variant, plan)
    if not plans:
        reasons = "; ".join(dict.fromkeys(result.reason or "" for result in results))
        raise UsageError(f"no strategy can do this: {reasons}", hint="change the offload or the strategies")
    return Estimates(
        kind="compare",
        request=request_of(job),
        results=results,
        dividing_line=dividing_line(job),
        crossovers=crossovers(results),
        assumptions=_merged(list(job.assumptions), *(plan.assumptions for plan in plans)),
        excluded=_merged(excluded),
        warnings=_warnings(job, plans, {result.strategy for result in results if result.applicable}),
    )


def _check_settings(job: Job, frameworks: Sequence[str]) -> None:
    """Refuse a setting that none of the frameworks has."""
    known = {row.name for framework in frameworks for row in framework_named(framework).SETTINGS}
    for name in job.settings:
        if name not in known:
            raise unknown_name(f"setting of {', '.join(frameworks)}", name, sorted(known), hint=WHERE_LISTED)


def _warnings(job: Job, plans: Sequence[Plan], strategies: set[str]) -> list[str]:
    """What to mind; a setting that acts in one of the rows is not idle because it does not in another."""
    return [
        text
        for text in _merged(list(job.warnings), *(plan.warnings for plan in plans))
        if not isinstance(text, Idle) or text.strategies.isdisjoint(strategies)
    ]


def _merged(*lists: list[str]) -> list[str]:
    return list(dict.fromkeys(line for lines in lists for line in lines))


def _refused(job: Job, reason: str) -> StrategyResult:
    return StrategyResult(
        strategy=job.strategy,
        framework=job.framework,
        applicable=False,
        reason=reason,
        offload=OffloadResult(optimizer=job.offload.optimizer, params=job.offload.params),
        capacity_bytes=job.machine.capacity_bytes,
        reserve_bytes=job.machine.reserve_bytes,
    )


def dividing_line(job: Job) -> DividingLine | None:
    """Whether 2Ψ/(tp·pp) fits one GPU, and if so from which N_d on ZeRO-2 does. None when no GPU is given."""
    if job.machine.capacity_bytes is None:
        return None
    room = job.machine.capacity_bytes - job.machine.reserve_bytes
    whole = max(
        sum(
            floor_line_bytes(num_params=p.num_params, param_bytes=p.param_bytes, model_parallel=1)
            for p in view.parts
        )
        for view in rank_views(job.model_copy(update={"strategy": "zero2"}))
    )
    fits = bool(whole <= room)
    zero2 = job.model_copy(update={"strategy": "zero2", "offload": type(job.offload)(), "settings": {}})
    return DividingLine(
        whole_params_bytes=whole,
        capacity_bytes=room,
        whole_params_fit=fits,
        zero2_min_data_parallel_size=smallest_degree(zero2) if fits else None,
    )
