"""What a Megatron rank sends in an optimizer step: gradients, updated parameters, activations between TP ranks."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from zerocalc.formulas.communication import all_reduce_sent_bytes, leg_sent_bytes
from zerocalc.formulas.megatron import buffer_bytes
from zerocalc.formulas.registry import apply, apply_grouped
from zerocalc.frameworks.megatron.buffers import buckets, buffer_elements
from zerocalc.frameworks.megatron.settings import grad_dtype, sequence_parallel
from zerocalc.frameworks.terms import Collective, Direction, Plan, Traffic
from zerocalc.strategies import LEGS
from zerocalc.units import ceil_div, dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from zerocalc.rank import Part, RankView
    from zerocalc.strategies import Op

_SEQUENCE_PARALLEL = (
    # Korthikanti et al., section 4.2.2: per layer and pass, around attention and around the MLP; backward gathers
    # the two inputs once more for the weights' gradients, because only a slice of each was kept.
    ("all_gather", "forward", 2),
    ("reduce_scatter", "forward", 2),
    ("all_gather", "backward", 4),
    ("reduce_scatter", "backward", 2),
)
_TENSOR_PARALLEL = (("all_reduce", "forward", 2), ("all_reduce", "backward", 2))


def collectives(view: RankView, settings: Mapping[str, Any], answer: Plan) -> None:
    """Add the collectives of one step, and what optimizer offload moves."""
    for part in view.parts:
        if part.trainable:
            answer.collectives += _data_parallel(view, part, settings)
            answer.traffic += _offload_traffic(view, part, settings)
    answer.collectives += _tied_embedding(view, settings)
    answer.collectives += _tensor_parallel(view, settings)


def _data_parallel(view: RankView, part: Part, settings: Mapping[str, Any]) -> Iterator[Collective]:
    """Gradients are reduced once a step, whatever the number of micro-batches; parameters are gathered after it."""
    grads = grad_dtype(view.job, settings)
    sharded = "optimizer_states" in view.strategy.shards
    sizes = Counter(buckets(view, part, settings))
    share = Fraction(part.num_params, view.num_model_params)
    op: Op = "reduce_scatter" if sharded else "all_reduce"
    yield _bucketed(part, sizes, share, op=op, tensor="grads", dtype=grads)
    if sharded:
        yield _bucketed(part, sizes, share, op="all_gather", tensor="params", dtype=part.param_dtype)


def _bucketed(
    part: Part, sizes: Counter[int], share: Fraction, *, op: Op, tensor: str, dtype: str
) -> Collective:
    """One collective per bucket; `share` is the part of the rank's parameters that it moves."""
    ranks, element = int(part.shard_ranks), dtype_bytes(dtype)
    full = apply_grouped(
        buffer_bytes,
        [
            (count, {"num_elements": size, "element_bytes": element, "shards": 1})
            for size, count in sizes.items()
        ],
    )
    sent = apply_grouped(
        all_reduce_sent_bytes if op == "all_reduce" else leg_sent_bytes,
        [
            (1, {"count": count, "full_bytes": int(size * element), "ranks": ranks})
            for size, count in sizes.items()
        ],
    )
    return Collective(
        op=op,
        tensor=tensor,
        dtype=dtype,
        part=part.name,
        phase="backward" if tensor == "grads" else "optimizer_step",
        group_size=ranks,
        count=sizes.total(),
        full=full,
        full_bytes_in_all=int(full.value),
        sent=sent,
        volume_params=LEGS[op] * share,
    )


def _tied_embedding(view: RankView, settings: Mapping[str, Any]) -> Iterator[Collective]:
    """A tied embedding has a copy on the first and on the last stage: the two add up their gradients."""
    tied = view.job.model.layout.ties and view.job.parallelism.pp > 1
    ends = [t for t, _ in view.layout.grouped() if t.kind == "embedding" or t.name.startswith("tied_head")]
    if not tied or not ends:
        return
    grads = grad_dtype(view.job, settings)
    full = apply(buffer_bytes, num_elements=ends[0].numel, element_bytes=dtype_bytes(grads), shards=1)
    yield Collective(
        op="all_reduce", tensor="grads", dtype=grads, phase="optimizer_step", group="pipeline_ends", group_size=2,
        count=1, full=full, sent=apply(all_reduce_sent_bytes, count=1, full_bytes=full.value, ranks=2),
    )  # fmt: skip


def _tensor_parallel(view: RankView, settings: Mapping[str, Any]) -> Iterator[Collective]:
    """Activations that tensor-parallel ranks exchange around every layer, when batch and shape are known."""
    work, parallelism, model = view.job.workload, view.job.parallelism, view.job.model.architecture
    if (
        parallelism.tp == 1
        or work.micro_batch is None
        or work.seq_len is None
        or model is None
        or model.dimensions is None
    ):
        return
    tokens = work.micro_batch * ceil_div(work.seq_len, parallelism.cp)
    dtype = view.job.precision.param_dtype
    full = apply(
        buffer_bytes,
        num_elements=tokens * model.dimensions.hidden_size,
        element_bytes=dtype_bytes(dtype),
        shards=1,
    )
    for op, phase, per_layer in (
        _SEQUENCE_PARALLEL if sequence_parallel(view.job, settings) else _TENSOR_PARALLEL
    ):
        count = per_layer * view.layout.num_layers * work.grad_accum
        formula = all_reduce_sent_bytes if op == "all_reduce" else leg_sent_bytes
        yield Collective(
            op=op, tensor="activations", dtype=dtype, phase=phase, group="tensor_parallel",
            group_size=parallelism.tp, count=count, full=full,
            sent=apply(formula, count=count, full_bytes=full.value, ranks=parallelism.tp),
        )  # fmt: skip


def _offload_traffic(view: RankView, part: Part, settings: Mapping[str, Any]) -> Iterator[Traffic]:
    """Optimizer offload: the rank's gradients down, its updated parameters up."""
    if view.job.offload.optimizer == "none":
        return
    elements = buffer_elements(view, part, settings)
    rows: tuple[tuple[Direction, str, str], ...] = (
        ("to_host", "grads", grad_dtype(view.job, settings)),
        ("from_host", "params", part.param_dtype),
    )
    for direction, name, dtype in rows:
        amount = apply(
            buffer_bytes,
            num_elements=elements,
            element_bytes=dtype_bytes(dtype),
            shards=int(part.shard_ranks),
        )
        yield Traffic(link="host", direction=direction, name=name, amount=amount)
