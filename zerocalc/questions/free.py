"""What is free in a plan: one row per word that is searched, the values it may take, the batches that make a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isqrt
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from zerocalc.specs.job import Job

COUNTS_MODEL_PARALLEL = frozenset({"megatron"})
"""Frameworks whose traffic includes what tensor-parallel ranks send, without which those would look free."""
MODEL_PARALLEL = ("tp", "pp", "ep")


class Candidate(NamedTuple):
    """One configuration: how the job is changed, its batch, and its figures."""

    job: Job
    """The job without its batch."""
    micro_batch: int
    grad_accum: int
    figures: Mapping[str, Any]

    @property
    def fits(self) -> bool:
        """Whether it fits its GPU and overflows neither host nor NVMe."""
        return all(self.figures[name] is not False for name in ("fits", "host_fits", "nvme_fits"))

    @property
    def rank(self) -> tuple[float, ...]:
        """What candidates are ordered by: the upper bound of a step, then the lower one, then the peak."""
        seconds = (self.figures["step_s_upper"], self.figures["step_s_lower"])
        return (*(float("inf") if bound is None else bound for bound in seconds), self.figures["peak_bytes"])

    def whole_job(self) -> Job:
        """The job with its batch, as `estimate` would be asked about it."""
        work = self.job.workload.model_copy(
            update={"micro_batch": self.micro_batch, "grad_accum": self.grad_accum}
        )
        return self.job.model_copy(update={"workload": work})


def _strategies(job: Job) -> list[Any]:
    from zerocalc.frameworks import framework_named

    p = job.parallelism
    several_nodes = p.gpus_per_node is not None and p.world_size > p.gpus_per_node
    usual = ("ddp", "zero1", "zero2", "zero3", *(("hsdp",) if several_nodes else ()))
    return [name for name in usual if name in framework_named(job.framework).STRATEGIES]


def _optimizer_tiers(job: Job) -> list[Any]:
    return ["none", "cpu", *(["nvme"] if job.machine.nvme_memory_bytes else [])]


def _checkpointing(job: Job) -> list[Any]:
    return ["none", "selective", "full"] if job.model.architecture is not None else ["none"]


def _powers(most: int) -> list[int]:
    return [1 << power for power in range(most.bit_length()) if 1 << power <= most]


def _tensor_degrees(job: Job) -> list[Any]:
    sizes = job.model.architecture.dimensions if job.model.architecture else None
    heads = sizes.num_kv_heads if sizes else 8
    most = min(job.parallelism.gpus_per_node or 8, job.parallelism.world_size)
    return [degree for degree in _powers(most) if heads % degree == 0]


def _pipeline_degrees(job: Job) -> list[Any]:
    layers = job.model.layout.num_layers
    return [d for d in _powers(min(job.parallelism.world_size, 64)) if d == 1 or (layers and layers % d == 0)]


def _expert_degrees(job: Job) -> list[Any]:
    sizes = job.model.architecture.dimensions if job.model.architecture else None
    experts = sizes.num_experts if sizes else 0
    return [d for d in _powers(min(experts, job.parallelism.world_size, 64)) if experts % d == 0] or [1]


FREE: dict[str, Callable[[Job], list[Any]]] = {
    "strategy": _strategies,
    "checkpointing": _checkpointing,
    "offload_optimizer": _optimizer_tiers,
    "offload_params": _optimizer_tiers,
    "tp": _tensor_degrees,
    "pp": _pipeline_degrees,
    "ep": _expert_degrees,
}
"""What is searched, and the values it may take."""


def choices(job: Job, given: Mapping[str, Sequence[Any]], fixed: Sequence[str]) -> dict[str, list[Any]]:
    """The values of everything that is free: those given, the only one of what is fixed, or the usual ones."""
    found: dict[str, list[Any]] = {}
    for word, usual in FREE.items():
        if word in given:
            found[word] = list(given[word])
        elif word in fixed or (word in MODEL_PARALLEL and job.framework not in COUNTS_MODEL_PARALLEL):
            found[word] = [value_of(job, word)]
        else:
            found[word] = usual(job)
    found |= {word: list(values) for word, values in given.items() if word not in found}
    return found


def value_of(job: Job, word: str) -> Any:
    """What a job has for a word that may be searched."""
    places = {
        "strategy": job.strategy, "checkpointing": job.workload.checkpointing,
        "offload_optimizer": job.offload.optimizer, "offload_params": job.offload.params,
    }  # fmt: skip
    return places[word] if word in places else getattr(job.parallelism, word)


def with_choice(job: Job, choice: Mapping[str, Any]) -> Job:
    """The job with other values of what is searched; `set.NAME` is a framework's setting."""
    own = {word.removeprefix("set."): value for word, value in choice.items() if word.startswith("set.")}
    degrees = {word: choice[word] for word in MODEL_PARALLEL}
    return job.model_copy(
        update={
            "strategy": choice["strategy"],
            "settings": {**job.settings, **own},
            "workload": job.workload.model_copy(update={"checkpointing": choice["checkpointing"]}),
            "parallelism": job.parallelism.model_copy(update=degrees),
            "offload": type(job.offload).model_construct(
                optimizer=choice["offload_optimizer"], params=choice["offload_params"]
            ),
        }
    )


def batches(ranks: int, global_batch: int, micro_batch: int | None) -> list[dict[str, int]]:
    """Every way to make the global batch of micro-batches; none where the ranks do not divide it."""
    per_rank, rest = divmod(global_batch, ranks)
    if rest or not per_rank:
        return []
    sizes = [micro_batch] if micro_batch else divisors(per_rank)
    return [{"micro_batch": size, "grad_accum": per_rank // size} for size in sizes if per_rank % size == 0]


def divisors(number: int) -> list[int]:
    """All of them, least first."""
    small = [size for size in range(1, isqrt(number) + 1) if number % size == 0]
    return sorted({*small, *(number // size for size in small)})
