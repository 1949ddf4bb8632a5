"""Where Megatron puts what: the padded vocabulary, the layers of each pipeline stage, the interleaved schedule."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zerocalc.errors import UsageError
from zerocalc.formulas.activations import micro_batches_in_flight
from zerocalc.formulas.megatron import chunks_in_flight
from zerocalc.frameworks.megatron.settings import resolved
from zerocalc.units import ceil_div

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zerocalc.layout import Architecture, Tensor
    from zerocalc.rank import RankView
    from zerocalc.specs.job import Job

_WITH_VOCABULARY = ("embedding", "head")


def prepare(job: Job) -> Job:
    """The job with the vocabulary padded and the layers dealt to pipeline stages as Megatron does it."""
    settings, _ = resolved(job)
    changed: dict[str, Any] = {}
    if (architecture := job.model.architecture) is not None:
        divisor = settings["make_vocab_size_divisible_by"] * job.parallelism.tp
        padded = _padded(architecture, divisor)
        changed["model"] = job.model.model_copy(
            update={"architecture": padded, "num_params": padded.layout.num_params}
        )
        if (layers := _stage_layers(job, architecture.layout.num_layers, settings)) is not None:
            changed["parallelism"] = job.parallelism.model_copy(update={"stage_layers": layers})
    return job.model_copy(update=changed)


def _padded(architecture: Architecture, divisor: int) -> Architecture:
    """The architecture with every matrix that has a row per word padded to a multiple of `divisor` rows."""
    dimensions = architecture.dimensions
    if dimensions is None:
        return architecture
    rows = ceil_div(dimensions.vocab_size, divisor) * divisor

    def grow(tensor: Tensor) -> Tensor:
        if tensor.kind not in _WITH_VOCABULARY or tensor.shape[0] != dimensions.vocab_size:
            return tensor
        return replace(tensor, shape=(rows, *tensor.shape[1:]))

    units = tuple(replace(unit, tensors=tuple(map(grow, unit.tensors))) for unit in architecture.layout.units)
    return replace(
        architecture,
        layout=replace(architecture.layout, units=units),
        dimensions=replace(dimensions, vocab_size=rows),
    )


def _stage_layers(job: Job, num_layers: int, settings: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Layers per stage where the first or the last differs. Raises UsageError where the rest does not divide."""
    first, last = (
        settings["num_layers_in_first_pipeline_stage"],
        settings["num_layers_in_last_pipeline_stage"],
    )
    stages = job.parallelism.pp
    if stages == 1 or (first is None and last is None):
        return None
    given = [size for size in (first, last) if size is not None]
    between = stages - len(given)
    rest = num_layers - sum(given)
    if rest < 0 or (between and rest % between) or (not between and rest):
        raise UsageError(
            f"{rest} layers do not divide into the {between} other pipeline stages",
            hint="change num_layers_in_first_pipeline_stage, num_layers_in_last_pipeline_stage or --pp",
        )
    middle = (rest // between,) * between if between else ()
    return (*([first] if first is not None else []), *middle, *([last] if last is not None else []))


def model_chunks(view: RankView, settings: Mapping[str, Any]) -> int:
    """Model chunks per pipeline stage: one without interleaving. Raises UsageError where layers do not divide."""
    chunks = settings["virtual_pipeline_model_parallel_size"]
    layers = settings["num_layers_per_virtual_pipeline_stage"]
    here = view.layout.num_layers
    if view.job.parallelism.pp == 1 or (chunks is None and layers is None):
        return 1
    if layers is not None and chunks is None:
        chunks = max(1, here // layers)
    if here % chunks:
        raise UsageError(f"{here} layers of a pipeline stage do not divide into {chunks} chunks")
    return int(chunks)


def in_flight(view: RankView, chunks: int) -> Any:
    """Model chunks whose activations this stage holds at once; each is one micro-batch through a stage's n-th part."""
    micro_batches, pp = view.job.workload.grad_accum, view.job.parallelism.pp
    if chunks == 1:
        return micro_batches_in_flight(num_micro_batches=micro_batches, pipeline_parallel=pp - view.stage)
    return chunks_in_flight(
        num_micro_batches=micro_batches, pipeline_parallel=pp, stage=view.stage, model_chunks=chunks
    )
