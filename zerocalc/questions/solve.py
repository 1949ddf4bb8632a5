"""The unknown: the largest model, the fewest GPUs, the cheapest strategy. Searches over estimates, exact at the edge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from zerocalc.errors import SpecError, UsageError
from zerocalc.evaluate import (
    evaluate,
    excluded_of,
    fits_everywhere,
    inapplicable,
    overfull,
    request_of,
    unshared_bytes,
)
from zerocalc.results import Memory, Solution, SolveAnswer, StrategyResult, TierMemory
from zerocalc.specs.types import MAX_RANKS
from zerocalc.strategies import COMPARED
from zerocalc.units import MAX_PARAMS

if TYPE_CHECKING:
    from zerocalc.specs.job import Job


def largest_true(holds: Callable[[int], bool], *, low: int, high: int) -> int | None:
    """The largest number in [low, high] for which `holds`, given that it holds up to some point; None if nowhere."""
    if not holds(low):
        return None
    if holds(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def smallest_true(holds: Callable[[int], bool], *, low: int, high: int) -> int | None:
    """The smallest number in [low, high] for which `holds`, given that it holds from some point on; None if nowhere."""
    last_false = largest_true(lambda number: not holds(number), low=low, high=high)
    if last_false is None:
        return low
    return None if last_false == high else last_false + 1


def room_of(job: Job) -> int:
    """Bytes that the job may use on one GPU. Raises UsageError when no GPU is given."""
    if job.machine.capacity_bytes is None:
        raise UsageError(
            "solve needs the GPU's memory", hint="give --gpu, like --gpu a100-80gb or --gpu 80GB"
        )
    return job.machine.capacity_bytes - job.machine.reserve_bytes


def _fits(job: Job) -> bool:
    try:
        return overfull(job) is None
    except SpecError:
        return False


def with_degree(job: Job, degree: int) -> Job:
    """The job with another data-parallel degree, everything around it unchanged."""
    p = job.parallelism
    return job.model_copy(
        update={"parallelism": p.model_copy(update={"world_size": degree * p.tp * p.pp * p.cp})}
    )


def degree_step(job: Job) -> int:
    """Degrees come in multiples of this, so that experts and sharding groups divide the ranks."""
    from math import lcm

    p = job.parallelism
    step = lcm(p.ep * p.etp * p.pp, p.tp * p.pp * p.cp) // (p.tp * p.pp * p.cp)
    if job.strategy in {"hsdp", "mics"}:
        group = p.sharding_group_size or p.gpus_per_node or 1
        step = lcm(step, lcm(group, p.cp) // p.cp)
    return step


def smallest_degree(job: Job) -> int | None:
    """The smallest data-parallel degree with which the job fits one GPU; None when no number of GPUs helps.

    Degrees are doubled until one fits: what a rank holds may grow again where padding to whole rows outweighs sharding.
    """
    step = degree_step(job)
    most = max(1, MAX_RANKS // (job.parallelism.tp * job.parallelism.pp * job.parallelism.cp * step))

    def fits(steps: int) -> bool:
        return _fits(with_degree(job, steps * step))

    high = 1
    while not fits(high):
        if high == most or (high == 1 and _hopeless(job, [steps * step for steps in (2, 1024, most)])):
            return None
        high = min(2 * high, most)
    found = smallest_true(fits, low=high // 2 + 1, high=high)
    return None if found is None else found * step


def _hopeless(job: Job, degrees: Sequence[int]) -> bool:
    """Whether what no GPU shares is too much, with few ranks and with many: no need to try every number of them."""
    try:
        return all(unshared_bytes(with_degree(job, degree)) > room_of(job) for degree in degrees)
    except SpecError:
        return False


def _with_params(job: Job, num_params: int) -> Job:
    model = type(job.model)(num_params=num_params, name=str(num_params))
    return job.model_copy(update={"model": model})


def _solve_params(job: Job) -> SolveAnswer:
    value = largest_true(lambda number: _fits(_with_params(job, number)), low=1, high=MAX_PARAMS)
    return _answer(job, value, None if value is None else _with_params(job, value))


def _solve_gpus(job: Job) -> SolveAnswer:
    degree = smallest_degree(job)
    solved = None if degree is None else with_degree(job, degree)
    value = None if solved is None else solved.parallelism.world_size
    return _answer(job, value, solved, data_parallel_size=degree)


def _answer(
    job: Job, value: int | None, solved: Job | None, *, data_parallel_size: int | None = None
) -> SolveAnswer:
    result, _ = evaluate(solved or job)
    assert result.memory is not None
    return SolveAnswer(
        strategy=job.strategy,
        value=value,
        binding=_binding(result),
        data_parallel_size=data_parallel_size,
        reason=None if value is not None else _why_not(job, result.memory),
        peak_bytes=None if value is None else result.memory.gpu.peak_bytes,
        headroom_bytes=None if value is None else result.headroom_bytes,
    )


def _binding(result: StrategyResult) -> str | None:
    """The largest term of the memory that is fullest; outside the GPU with the name of the tier."""
    assert result.memory is not None
    room = (result.capacity_bytes or 0) - result.reserve_bytes
    fullest, binding = Fraction(result.memory.gpu.peak_bytes, max(room, 1)), result.binding
    for tier, memory in (("cpu", result.memory.cpu), ("nvme", result.memory.nvme)):
        if memory.bytes_per_node and memory.capacity_bytes:
            share = Fraction(memory.bytes_per_node, memory.capacity_bytes)
            if share > fullest:
                fullest, binding = share, f"{max(memory.terms, key=lambda term: term.bytes).name} on {tier}"
    return binding


def _why_not(job: Job, memory: Memory) -> str:
    room, gpu = room_of(job), memory.gpu
    if gpu.constant_bytes > room:
        return (
            f"no number of GPUs helps: {gpu.constant_bytes:,} bytes are not sharded, and one GPU has {room:,}"
        )
    if gpu.peak_bytes > room:
        return f"even the smallest needs {gpu.peak_bytes:,} bytes, and one GPU has {room:,}"
    name, tier = next((name, tier) for name, tier in _tiers(memory) if tier.fits is False)
    return f"even the smallest needs {tier.bytes_per_node:,} bytes of {name} on one node, which has {tier.capacity_bytes:,}"


def _tiers(memory: Memory) -> tuple[tuple[str, TierMemory], ...]:
    return ("host memory", memory.cpu), ("NVMe", memory.nvme)


def _with_work(job: Job, **work: int) -> Job:
    return job.model_copy(update={"workload": job.workload.model_copy(update=work)})


def _solve_work(job: Job, word: str) -> SolveAnswer:
    """The largest micro-batch or sequence length whose activations still fit."""
    other = "seq_len" if word == "micro_batch" else "micro_batch"
    if getattr(job.workload, other) is None:
        flag = f"--{other.replace('_', '-')}"
        raise UsageError(
            f"solve {word.replace('_', '-')} needs {flag}",
            hint=f"like {flag} {4096 if other == 'seq_len' else 1}",
        )
    model = job.model.architecture
    if model is None or model.dimensions is None:
        raise UsageError(
            "activations need the model's shape, not just a count", hint="name a preset or give a config.json"
        )
    value = largest_true(lambda number: _fits(_with_work(job, **{word: number})), low=1, high=MAX_WORK)
    return _answer(job, value, None if value is None else _with_work(job, **{word: value}))


SOLVERS: dict[str, Callable[[Job], SolveAnswer]] = {
    "params": _solve_params,
    "gpus": _solve_gpus,
    "micro-batch": lambda job: _solve_work(job, "micro_batch"),
    "seq-len": lambda job: _solve_work(job, "seq_len"),
}
WORDS = {
    "gpus": ("world_size", "--gpus or --dp"),
    "micro-batch": ("micro_batch", "--micro-batch"),
    "seq-len": ("seq_len", "--seq-len"),
}
"""The word of the job that each quantity decides, and its flag."""
MAX_WORK = 10**9


def solve(job: Job, quantity: str, *, strategies: Sequence[str] = COMPARED) -> Solution:
    """Solve for one quantity under each strategy.

    `params`: the largest Ψ that fits; `gpus`: the smallest world size; `micro-batch` and `seq-len`: the largest that
    fit; `strategy`: of those that fit, the one that sends least. Raises UsageError for another quantity or without a GPU.
    """
    room_of(job)
    variants = [job.model_copy(update={"strategy": strategy}) for strategy in strategies]
    if quantity == "strategy":
        answers = [_cheapest(variants)]
    elif quantity in SOLVERS:
        answers = [_solved(variant, SOLVERS[quantity]) for variant in variants]
    else:
        raise UsageError(f"cannot solve for {quantity!r}", hint=f"one of {', '.join([*SOLVERS, 'strategy'])}")
    possible = [variant for variant in variants if not inapplicable(variant)]
    _, plan = evaluate(possible[-1]) if possible else (None, None)
    return Solution(
        kind="solve",
        quantity=quantity,
        request=request_of(job),
        answers=answers,
        assumptions=[*job.assumptions, *(plan.assumptions if plan else [])],
        excluded=excluded_of(job, plan) if plan else [],
        warnings=[*_idle(job, quantity), *job.warnings, *_unlimited(quantity, answers)],
    )


def _idle(job: Job, quantity: str) -> Iterator[str]:
    """A flag that says what is asked for has no effect."""
    word, flag = WORDS.get(quantity, ("", ""))
    if job.origins.get(word) == "flag":
        yield f"{flag} has no effect: it is what solve {quantity} finds"


def _unlimited(quantity: str, answers: Sequence[SolveAnswer]) -> Iterator[str]:
    """A model that only the supported bound limits is no answer to rely on."""
    for answer in answers:
        if quantity == "params" and answer.value == MAX_PARAMS:
            yield (
                f"{answer.strategy}: no memory whose size is known limits the model; give --host-memory or "
                "--nvme-memory with --gpus-per-node, or a model of known shape"
            )


def _solved(variant: Job, solver: Callable[[Job], SolveAnswer]) -> SolveAnswer:
    if reason := inapplicable(variant):
        return SolveAnswer(strategy=variant.strategy, value=None, binding=None, reason=reason)
    return solver(variant)


def _cheapest(variants: list[Job]) -> SolveAnswer:
    """Of the strategies that fit, the one that sends fewest bytes; of equals, the one that shards least."""
    evaluated = [_measured(evaluate(variant)[0]) for variant in variants if not inapplicable(variant)]
    if not evaluated:
        return SolveAnswer(strategy="none", value=None, binding=None, reason="no strategy can do this")
    _, peak, closest = min(evaluated, key=lambda item: item[1])
    fitting = [item for item in evaluated if fits_everywhere(item[2])]
    if not fitting:
        reason = f"no strategy fits; the closest is {closest.strategy} with {peak:,} bytes per GPU"
        return SolveAnswer(strategy="none", value=None, binding=closest.binding, reason=reason)
    _, peak, best = min(fitting, key=lambda item: item[0])
    return SolveAnswer(
        strategy=best.strategy,
        value=best.strategy,
        binding=best.binding,
        peak_bytes=peak,
        headroom_bytes=best.headroom_bytes,
    )


def _measured(result: StrategyResult) -> tuple[int, int, StrategyResult]:
    """A result with what it sends and its peak."""
    assert result.memory is not None
    assert result.communication is not None
    return result.communication.sent_bytes_per_rank, result.memory.gpu.peak_bytes, result
