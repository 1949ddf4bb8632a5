"""Published step times against the bounds of a step: how many lie between them, and how wide they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import zerocalc
from tests.published import jobs

DATA = Path(__file__).parents[1] / "data" / "published"
NODES = {
    "a100-80gb": "dgx-a100-80", "a100-40gb": "dgx-a100-40", "h100-80gb": "dgx-h100", "h200": "dgx-h200",
    "H100 96GB HBM2e": "dgx-h100", "b200": "dgx-b200",
}  # fmt: skip
"""Where runs on several GPUs are taken to have been made: its links' rates."""
IN_SECONDS = {"step_ms": 1e-3, "iter_s": 1, "step_s": 1}
PER_RANK = {"tokens_per_s": False, "tokens_per_s_gpu": True, "tps": True, "async_tps": True}
WIDEST = 6.0
SHARE_INSIDE = 0.85
"""What is missed: models so small, or batches so short, that launching kernels takes longest, and B200 below 25% of peak."""


class Measured(NamedTuple):
    """One run's time and our bounds."""

    case: str
    seconds: float
    lower: float
    upper: float

    @property
    def inside(self) -> bool:
        return self.lower <= self.seconds <= self.upper


def seconds_of(measured: dict[str, Any], result: Any, world: int) -> Iterator[float]:
    """Seconds of a step, from each figure of a case that says it."""
    for name, value in measured.items():
        if name in IN_SECONDS:
            yield value * IN_SECONDS[name]
        elif name in PER_RANK:
            yield result.tokens_per_step / value / (world if PER_RANK[name] else 1)


def timed(row: dict[str, Any]) -> Any:
    """The bounds of a row's job on its card by name, in a node where there are several."""
    job = row["job"] | {"gpu_bytes": None}
    card = jobs._card(job)
    node = NODES.get(job["gpu"]) or NODES.get(card or "")
    framework, implied = jobs.framework_of(job)
    words = jobs.words_of(row | {"job": job}, job, framework)
    words.pop("reserve", None)
    if node and words["gpus"] > 1:
        words = {name: value for name, value in words.items() if name not in {"gpu", "gpus_per_node"}}
        words["node"] = node
    settings = implied | jobs.settings_of(job, framework)
    return (
        zerocalc.estimate(zerocalc.job(jobs.model_text(job["model"]), settings=settings, **words))
        .results[0]
        .time
    )


@cache
def runs() -> tuple[Measured, ...]:
    """Every time of a fully specified case."""
    measured = {case["id"]: case["measured"] for case in json.loads((DATA / "steps.json").read_text())}
    found: dict[str, list[Measured]] = {}
    for row in json.loads((DATA / "gate.json").read_text()):
        case, job = row["case"], row["job"]
        if case in found or case not in measured or row["minus"] or not job:
            continue
        if job["micro_batch"] and job["seq_len"] and (time := timed(row)) is not None:
            times = seconds_of(measured[case], time, job["gpus"] or 1)
            bounds = (time.step_s.lower, time.step_s.upper)
            found[case] = [Measured(case, seconds, *bounds) for seconds in times]
    return tuple(run for several in found.values() for run in several)


def test_measured_steps_lie_between_the_bounds() -> None:
    assert len(runs()) > 40
    missed = [run for run in runs() if not run.inside]
    assert len(missed) <= (1 - SHARE_INSIDE) * len(runs()), missed
    # The lower bound is one: nothing runs faster.
    assert [run for run in runs() if run.seconds < run.lower] == []


def test_the_bounds_are_narrow_enough_to_choose_by() -> None:
    assert max(run.upper / run.lower for run in runs()) < WIDEST
