"""Memory over the data-parallel degree: the same job at N_d = 1, 2, 4, … and at the asked one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from zerocalc.evaluate import evaluate, with_framework
from zerocalc.questions.solve import degree_step, with_degree
from zerocalc.results.curve import Curve, CurvePoint
from zerocalc.specs.types import MAX_RANKS

if TYPE_CHECKING:
    from zerocalc.results import StrategyResult
    from zerocalc.specs.job import Job

USUAL_END = 1024
BEYOND = 8
"""How far past the asked degree a curve goes."""


def curves(job: Job, results: Iterable[StrategyResult]) -> list[Curve]:
    """One curve for every result that applies."""
    return [
        _curve(with_framework(job.model_copy(update={"strategy": row.strategy}), row.framework))
        for row in results
        if row.applicable
    ]


def degrees(job: Job) -> list[int]:
    """Powers of two times what divides the ranks, to well past the asked degree, which is among them."""
    p = job.parallelism
    asked, step = p.data_parallel_size, degree_step(job)
    end = min(max(USUAL_END, BEYOND * asked), MAX_RANKS // (p.tp * p.pp * p.cp))
    doubled = [step << power for power in range(end.bit_length()) if step << power <= end]
    return sorted({*doubled, asked})


def _curve(job: Job) -> Curve:
    points, constant = [], 0
    for degree in degrees(job):
        at = with_degree(job, degree)
        result, _ = evaluate(at)
        assert result.memory is not None
        gpu = result.memory.gpu
        constant = gpu.constant_bytes
        points.append(
            CurvePoint(
                data_parallel_size=degree,
                world_size=at.parallelism.world_size,
                model_states_bytes=gpu.model_states_bytes,
                peak_bytes=gpu.peak_bytes,
                fits=result.fits,
            )
        )
    return Curve(strategy=job.strategy, framework=job.framework, constant_bytes=constant, points=points)
