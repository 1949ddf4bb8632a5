"""`plan`: of all configurations that fit, the ones to run, at a fixed global batch."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from zerocalc.errors import SpecError, UsageError, ZerocalcError
from zerocalc.evaluate import evaluate, excluded_of, request_of
from zerocalc.questions.free import (
    COUNTS_MODEL_PARALLEL,
    FREE,
    MODEL_PARALLEL,
    Candidate,
    choices,
    value_of,
    with_choice,
)
from zerocalc.questions.search import RELIEFS, Search
from zerocalc.questions.solve import smallest_degree
from zerocalc.results.sweep import Difference, PlanAnswer, Planned
from zerocalc.units import ceil_div, parse_count

if TYPE_CHECKING:
    from zerocalc.results import StrategyResult
    from zerocalc.specs.job import Job

USUAL_TOKENS = 2**22
"""Tokens of a step where no global batch is given: about what large models are trained with."""
MAX_BATCH = 10**9
_SEARCHED = {word: word for word in FREE} | {"micro_batch": "micro_batch"}
_TOKENS = re.compile(r"(?P<count>.+?)\s*-?\s*tok(?:en)?s?", re.IGNORECASE)


def global_batch_of(text: str | int | None, job: Job) -> tuple[int, str | None]:
    """Sequences per step: as given, from a number of tokens, or the usual; and what had to be assumed."""
    seq_len, ranks = job.workload.seq_len or 1, job.parallelism.data_parallel_size
    if text is None:
        batch = max(1, USUAL_TOKENS // (seq_len * ranks)) * ranks
        return (
            batch,
            f"a global batch of {batch:,} sequences ({batch * seq_len:,} tokens); --global-batch changes it",
        )
    match = _TOKENS.fullmatch(str(text).strip())
    if match is None:
        return parse_count(str(text), name="--global-batch", maximum=MAX_BATCH), None
    tokens = parse_count(match["count"], name="--global-batch", maximum=10**15)
    batch = max(1, tokens // (seq_len * ranks)) * ranks
    if batch > MAX_BATCH:
        raise SpecError(f"--global-batch: {batch:,} sequences; at most {MAX_BATCH:,} are supported")
    return batch, f"{text} is a global batch of {batch:,} sequences of {seq_len:,} tokens"


def fixed_words(job: Job) -> tuple[str, ...]:
    """What the user decided: everything searched whose value is no default."""
    return tuple(
        word
        for path, word in _SEARCHED.items()
        if job.origins.get(path, "default") not in {"default", "assumed"}
    )


def plan(
    job: Job,
    *,
    global_batch: str | int | None = None,
    over: Mapping[str, Sequence[Any]] | None = None,
    top: int = 5,
    fixed: Sequence[str] | None = None,
) -> PlanAnswer:
    """Search for the configurations to run, the least upper bound of a step first, then the least lower bound.

    What `fixed` names keeps the job's value (default: what was given), `over` says what else to try. Raises UsageError
    without a GPU or its rates.
    """
    if job.machine.capacity_bytes is None:
        raise UsageError("plan needs the GPU's memory", hint="give --gpu h100 or --node dgx-h100")
    if job.speed is None or job.speed.peak_flops_per_s is None:
        raise UsageError(
            "plan ranks by time and needs the GPU's rates", hint="name the GPU (--gpu h100) or the node"
        )
    kept = fixed_words(job) if fixed is None else tuple(fixed)
    batch, said = global_batch_of(global_batch, job)
    micro = job.workload.micro_batch if "micro_batch" in kept or job.model.architecture is None else None
    found = choices(job, over or {}, kept)
    search = Search(job, found, batch, micro, tuple(over or ()))
    every = list(search.candidates())
    if not search.considered:
        ranks = job.parallelism.data_parallel_size
        raise UsageError(
            f"no configuration can be: a global batch of {batch:,} over {ranks:,} data-parallel ranks",
            hint="give --global-batch a multiple of the ranks, or fix less",
        )
    fitting = [candidate for candidate in every if candidate.fits]
    best = heapq.nsmallest(top, fitting, key=lambda candidate: candidate.rank)
    nearest = None if best else max(every, key=_nearness, default=search.closest())
    assumptions = [*_said(job, found, micro), *([said] if said else [])]
    return _answer(search, best, nearest, num_fitting=len(fitting), said=assumptions)


def job_of(job: Job, planned: Planned) -> Job:
    """The whole job of one line of a plan."""
    choice = {word: getattr(planned, word) for word in FREE}
    own = {f"set.{name}": value for name, value in planned.settings.items()}
    return Candidate(
        with_choice(job, {**choice, **own}), planned.micro_batch, planned.grad_accum, {}
    ).whole_job()


def _said(job: Job, found: Mapping[str, Sequence[Any]], micro: int | None) -> list[str]:
    """What the search assumed."""
    lines = ["ranked by the upper bound of a step (nothing overlaps), then by the lower one"]
    searched = [word.replace("_", "-") for word, values in found.items() if len(values) > 1]
    lines.append(f"searched: {', '.join([*searched, *([] if micro else ['micro-batch'])])}")
    if any(word in searched for word in (relief.replace("_", "-") for relief in RELIEFS)):
        lines.append(
            "recomputation and offload are tried where the same configuration with less of them does not fit"
        )
    if job.framework not in COUNTS_MODEL_PARALLEL and all(len(found[word]) == 1 for word in MODEL_PARALLEL):
        lines.append(
            f"tp, pp and ep stay as given: framework {job.framework} does not count what those ranks send "
            "(--framework megatron does; --over tp=1,2,4 searches them all the same)"
        )
    return lines


def _answer(
    search: Search, best: Sequence[Candidate], closest: Candidate | None, *, num_fitting: int, said: list[str]
) -> PlanAnswer:
    job = search.job
    results = [evaluate(candidate.whole_job()) for candidate in best[:2]]
    shown = [candidate.whole_job() for candidate in best[:1]] or [job]
    first, found = results[0] if results else None, search.found
    return PlanAnswer(
        kind="plan",
        request=request_of(shown[0]),
        global_batch=search.global_batch,
        num_candidates=search.considered,
        num_evaluated=search.evaluated,
        num_fitting=num_fitting,
        plans=[_planned(place, candidate, found) for place, candidate in enumerate(best, start=1)],
        differences=list(_differences(results[0][0], results[1][0])) if len(results) == 2 else [],
        closest=None if closest is None else _planned(0, closest, found),
        advice=[] if closest is None else list(_advice(closest)),
        best=first[0] if first else None,
        assumptions=[*said, *job.assumptions, *(first[1].assumptions if first else [])],
        excluded=excluded_of(job, first[1]) if first else [],
        warnings=[*job.warnings, *(first[1].warnings if first else [])],
    )


def _nearness(candidate: Candidate) -> tuple[bool, int]:
    """How near to fitting: what overflows no host first, then by what is missing on the GPU."""
    figures = candidate.figures
    hosts = figures["host_fits"] is not False and figures["nvme_fits"] is not False
    return hosts, figures["headroom_bytes"]


def _planned(place: int, candidate: Candidate, found: Mapping[str, Sequence[Any]]) -> Planned:
    job, figures = candidate.job, candidate.figures
    p = job.parallelism
    return Planned(
        place=place,
        strategy=job.strategy,
        framework=job.framework,
        tp=p.tp,
        pp=p.pp,
        cp=p.cp,
        ep=p.ep,
        data_parallel_size=p.data_parallel_size,
        micro_batch=candidate.micro_batch,
        grad_accum=candidate.grad_accum,
        checkpointing=job.workload.checkpointing,
        offload_optimizer=job.offload.optimizer,
        offload_params=job.offload.params,
        settings=dict(job.settings),
        command=_options(candidate, found),
        **{name: figures[name] for name in _FIGURES},
    )


_FIGURES = (
    "peak_bytes", "headroom_bytes", "sent_bytes_per_rank", "step_s_lower", "step_s_upper", "tokens_per_s_lower",
    "tokens_per_s_upper",
)  # fmt: skip


def _options(candidate: Candidate, found: Mapping[str, Sequence[Any]]) -> str:
    """The options that make this configuration of the job."""
    plain = {
        "checkpointing": "none",
        "offload_optimizer": "none",
        "offload_params": "none",
        "tp": 1,
        "pp": 1,
        "ep": 1,
    }
    chosen = {word: value_of(candidate.job, word) for word in FREE}
    words = [
        f"--{word.replace('_', '-')} {value}" for word, value in chosen.items() if value != plain.get(word)
    ]
    words += [f"--micro-batch {candidate.micro_batch}", f"--grad-accum {candidate.grad_accum}"]
    own = [word.removeprefix("set.") for word in found if word.startswith("set.")]
    words += [f"--set {name}={candidate.job.settings[name]}" for name in own]
    return " ".join(words)


def _differences(best: StrategyResult, other: StrategyResult) -> Iterable[Difference]:
    """Where two configurations part: seconds, bytes on each link, terms at the peak."""
    ours, theirs = _compared(best), _compared(other)
    for name in dict.fromkeys([*ours, *theirs]):
        value, unit = ours.get(name, (None, ""))
        against, other_unit = theirs.get(name, (None, ""))
        if value != against:
            yield Difference(name=name, value=value, against=against, unit=unit or other_unit)


def _compared(result: StrategyResult) -> dict[str, tuple[Any, str]]:
    time, memory = result.time, result.memory
    assert time is not None
    assert memory is not None
    assert result.communication is not None
    peak: dict[str, int] = {}
    for term in memory.gpu.terms:
        if memory.gpu.peak_phase in term.phases:
            peak[term.name] = peak.get(term.name, 0) + term.bytes
    return {
        "step_s_upper": (time.step_s.upper, "s"),
        "step_s_lower": (time.step_s.lower, "s"),
        "compute_s": (time.compute.seconds.upper, "s"),
        **{f"{link.link}_s": (link.seconds.upper, "s") for link in time.links},
        "cpu_optimizer_s": (time.cpu_optimizer_s, "s"),
        "bubble_factor": (time.bubble_factor, "ratio"),
        "sent_bytes_per_rank": (result.communication.sent_bytes_per_rank, "byte"),
        "peak_bytes": (memory.gpu.peak_bytes, "byte"),
        **{f"peak.{name}": (size, "byte") for name, size in peak.items()},
    }


def _advice(closest: Candidate) -> Iterable[str]:
    """What would make the nearest configuration fit."""
    missing = -closest.figures["headroom_bytes"]
    machine = closest.job.machine
    if closest.figures["host_fits"] is False or closest.figures["nvme_fits"] is False:
        yield "more host memory or NVMe per node"
    if missing > 0:
        assert machine.capacity_bytes is not None
        yield f"GPUs of at least {ceil_div(machine.capacity_bytes + missing, 10**9):,} GB instead of {machine.capacity_bytes // 10**9:,} GB"
        yield from _more_gpus(closest)


def _more_gpus(closest: Candidate) -> Iterable[str]:
    job = closest.whole_job()
    try:
        degree = smallest_degree(job)
    except ZerocalcError:
        return
    p = job.parallelism
    if degree is None:
        yield "shorter sequences (--seq-len), lower precision, or tensor and pipeline parallelism: no number of GPUs helps this one"
    elif degree > p.data_parallel_size:
        yield f"{degree * p.tp * p.pp * p.cp:,} GPUs: {job.strategy} fits from N_d = {degree:,} on"
