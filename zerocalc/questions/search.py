"""What `plan` looks through: all combinations of what is free, evaluated where that can matter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

from zerocalc.errors import SpecError, UsageError, ZerocalcError
from zerocalc.evaluate import inapplicable
from zerocalc.questions.free import MODEL_PARALLEL, Candidate, batches, with_choice
from zerocalc.rank import check_parallelism
from zerocalc.sweeps.figures import figures
from zerocalc.sweeps.line import answers
from zerocalc.sweeps.record import Recorder

if TYPE_CHECKING:
    from zerocalc.specs.job import Job

MAX_CANDIDATES = 1_000_000
Rung = tuple[int, ...]
RELIEFS = ("checkpointing", "offload_optimizer", "offload_params")
"""What costs time and saves memory: tried only where the same configuration with less of it does not fit."""


@dataclass
class Search:
    """All combinations of what is free, evaluated where that can matter."""

    job: Job
    found: Mapping[str, Sequence[Any]]
    global_batch: int
    micro_batch: int | None
    asked: Sequence[str] = ()
    """What is to be compared in any case."""
    considered: int = 0
    evaluated: int = 0
    nearest: tuple[int, Job] | None = None
    """Of those whose states alone are too much: what is missing least, as (headroom, job)."""

    _recorders: dict[int, Recorder] = field(default_factory=dict)
    """Of the variants that differ by relief alone, each of which keeps its job alive and so its key unique."""

    def candidates(self) -> Iterator[Candidate]:
        """Every configuration that was evaluated. What cannot be is passed over."""
        reliefs = [word for word in RELIEFS if word not in self.asked]
        outer = {word: values for word, values in self.found.items() if word not in reliefs}
        ladder = list(product(*(range(len(self.found[word])) for word in reliefs)))
        for values in product(*outer.values()):
            choice = dict(zip(outer, values, strict=True))
            points = self._points(choice, reliefs)
            if points and not self._repeats(choice):
                yield from self._climb(choice, reliefs, ladder, points)

    def _repeats(self, choice: Mapping[str, Any]) -> bool:
        """Whether another strategy is the same here: nothing is sharded over one rank."""
        p = self.job.parallelism.model_copy(update={word: choice[word] for word in MODEL_PARALLEL})
        alone = p.shard_size == 1 and (p.expert_shard_size == 1 or not self.job.model.num_expert_params)
        return alone and choice["strategy"] != self.found["strategy"][0]

    def _points(self, choice: Mapping[str, Any], reliefs: Sequence[str]) -> list[dict[str, int]]:
        lightest = {word: self.found[word][0] for word in reliefs}
        parallelism = with_choice(self.job, {**lightest, **choice}).parallelism
        try:
            check_parallelism(parallelism)
        except UsageError:
            return []
        return batches(parallelism.data_parallel_size, self.global_batch, self.micro_batch)

    def _climb(
        self,
        choice: Mapping[str, Any],
        reliefs: Sequence[str],
        ladder: Sequence[Rung],
        points: list[dict[str, int]],
    ) -> Iterator[Candidate]:
        """More and more relief, each only for the batches that did not fit with less."""
        variants: dict[Rung, Job] = {}
        self._recorders.clear()
        for rung in ladder:
            relief = {word: self.found[word][at] for word, at in zip(reliefs, rung, strict=True)}
            variant = with_choice(self.job, {**choice, **relief})
            if not inapplicable(variant):
                variants[rung] = variant
        self._count(len(points) * len(variants))
        if not variants:
            return
        top = max(variants)
        if self._states_overflow(variants[top]):
            return
        hopeful = {
            at
            for at, candidate in self._evaluated(variants[top], points, range(len(points)))
            if _near(candidate)
        }
        fitted: list[tuple[Rung, int]] = []
        for level in dict.fromkeys(variant.workload.checkpointing for variant in variants.values()):
            rungs = {rung: v for rung, v in variants.items() if v.workload.checkpointing == level}
            yield from self._offloaded(rungs, points, hopeful, fitted)

    def _offloaded(
        self,
        rungs: Mapping[Rung, Job],
        points: list[dict[str, int]],
        hopeful: set[int],
        fitted: list[tuple[Rung, int]],
    ) -> Iterator[Candidate]:
        """One level of recomputation: without offload, then with all of it, then what lies between.

        A batch that overflows the GPU with all offload is not tried with less, and one that overflows it with states
        on the host is not tried with them on NVMe.
        """
        order = sorted(rungs)
        most = order[-1]
        overflowing: set[tuple[bool, bool, int]] = set()
        with_most: dict[int, Candidate] | None = None
        for rung in order:
            offload = rungs[rung].offload
            moved = (offload.optimizer != "none", offload.params != "none")
            wanted = [
                at
                for at in sorted(hopeful)
                if (*moved, at) not in overflowing
                and not any(at == other and _no_more(less, rung) for less, other in fitted)
            ]
            if rung != order[0]:
                if with_most is None:
                    with_most = dict(self._evaluated(rungs[most], points, wanted))
                wanted = [at for at in wanted if at in with_most and _near(with_most[at])]
            again = rung == most and with_most is not None
            evaluated = with_most if again else dict(self._evaluated(rungs[rung], points, wanted))
            for at, candidate in ((at, evaluated[at]) for at in wanted if evaluated and at in evaluated):
                if candidate.fits:
                    fitted.append((rung, at))
                if candidate.figures["headroom_bytes"] < 0:
                    overflowing.add((*moved, at))
                yield candidate

    def _count(self, number: int) -> None:
        self.considered += number
        if self.considered > MAX_CANDIDATES:
            raise SpecError(
                f"more than {MAX_CANDIDATES:,} candidates", hint="fix something, like --strategy zero3"
            )

    def _evaluated(
        self, variant: Job, points: Sequence[Mapping[str, int]], left: Sequence[int]
    ) -> Iterator[tuple[int, Candidate]]:
        """Some of the batches of a variant; each variant is traced once."""
        if not left:
            return
        if id(variant) not in self._recorders:
            ends = {word: [point[word] for point in points] for word in points[0]}
            bounds = {word: (min(values), max(values)) for word, values in ends.items()}
            self._recorders[id(variant)] = Recorder(variant, bounds)
        self.evaluated += len(left)
        found = answers(self._recorders[id(variant)], [points[at] for at in left])
        for at, columns in zip(left, found, strict=True):
            if not isinstance(columns, str):
                yield at, Candidate(variant, points[at]["micro_batch"], points[at]["grad_accum"], columns)

    def _states_overflow(self, variant: Job) -> bool:
        """Whether what is held without any batch is already too much."""
        work = variant.workload.model_copy(update={"micro_batch": None, "grad_accum": 1})
        bare = variant.model_copy(update={"workload": work, "speed": None})
        try:
            headroom = figures(bare)["headroom_bytes"]
        except ZerocalcError:
            return True
        if headroom < 0 and (self.nearest is None or headroom > self.nearest[0]):
            self.nearest = (headroom, variant)
        return bool(headroom < 0)

    def closest(self) -> Candidate | None:
        """Where nothing was evaluated: the nearest of what was ruled out, with the smallest batch it can have."""
        if self.nearest is None:
            return None
        variant = self.nearest[1]
        points = batches(variant.parallelism.data_parallel_size, self.global_batch, self.micro_batch)
        return next((candidate for _, candidate in self._evaluated(variant, points, [0])), None)


def _near(candidate: Candidate) -> bool:
    """Whether a configuration with all relief fits, or so nearly that less relief might: one layer's input is at stake."""
    room = candidate.figures["headroom_bytes"] + candidate.figures["peak_bytes"]
    return bool(candidate.figures["peak_bytes"] * 9 <= room * 10)


def _no_more(less: Rung, rung: Rung) -> bool:
    return all(a <= b for a, b in zip(less, rung, strict=True))
