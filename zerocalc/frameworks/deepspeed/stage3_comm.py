"""What stage 3 sends: gathers by the trace, gradients by the bucket, scalars, persistent parameters; MiCS and ZeRO++."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from zerocalc.frameworks.deepspeed.collectives import collective
from zerocalc.frameworks.deepspeed.stage3 import gradient_buckets, num_sub_groups
from zerocalc.units import ceil_div

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zerocalc.frameworks.deepspeed.engine import Engine, Group
    from zerocalc.frameworks.deepspeed.gathers import Gathers
    from zerocalc.frameworks.deepspeed.modules import Param
    from zerocalc.frameworks.terms import Collective

TARGET_QUANT_GROUP = 8000
"""Elements that DeepSpeed's quantiser aims to put under one scale."""


def padded(param: Param, ranks: int) -> int:
    """Elements of a tensor gathered from equal shares."""
    return ranks * ceil_div(param.numel, ranks)


def collectives(engine: Engine, gathers: Gathers) -> Iterator[Collective]:
    """Every call of an optimizer step."""
    yield from _gathers(engine, gathers)
    yield from _reductions(engine)
    yield from _scalars(engine)
    yield from _persistent(engine, gathers)


class _Ring(NamedTuple):
    """Ranks that gather together, in one phase; `secondary` where hpZ's copy inside a node is read."""

    phase: str
    part: str
    ranks: int
    secondary: bool


def _gathers(engine: Engine, gathers: Gathers) -> Iterator[Collective]:
    """Gathers by phase and by ring; quantised ones are followed by their scales."""
    calls: dict[_Ring, Counter[int]] = {}
    groups = {group.name: group for group in engine.groups}
    for gather, times in gathers.calls():
        for group, members in _by_group(engine, gather.params):
            ranks = gathers.secondary_group if gather.secondary else group.ranks
            elements = sum(padded(param, group.ranks) for param in members)
            ring = _Ring(gather.phase, group.name, ranks, gather.secondary)
            calls.setdefault(ring, Counter())[elements] += times
    for ring, sizes in calls.items():
        tensors = [("params", engine.param_dtype, sizes)]
        if engine.settings["zero_quantized_weights"]:
            scales: Counter[int] = Counter()
            for size, times in sizes.items():
                scales[ring.ranks * quantized_groups(size // ring.ranks)] += times
            tensors = [("params", "int8", sizes), ("params_scales", "fp32", scales)]
        for tensor, dtype, elements_of in tensors:
            yield collective(
                engine, groups[ring.part], "all_gather", tensor, elements_of, dtype=dtype, phase=ring.phase,
                ranks=ring.ranks, over="secondary" if ring.secondary else "shard",
            )  # fmt: skip


def _by_group(engine: Engine, params: tuple[Param, ...]) -> Iterator[tuple[Group, list[Param]]]:
    """A gather's parameters by the ranks they are dealt over; those of equal rings travel in one call."""
    rings: dict[int, tuple[Group, list[Param]]] = {}
    for param in params:
        group = engine.group_of(param)
        rings.setdefault(group.ranks, (group, []))[1].append(param)
    yield from rings.values()


def quantized_groups(elements: int) -> int:
    """Scales that DeepSpeed's quantiser makes for a tensor: near 8000 elements each, dividing it into eighths."""
    groups = max(1, ceil_div(elements, TARGET_QUANT_GROUP))
    eighth, rest = divmod(elements, 8)
    if rest or not eighth:
        return groups
    # The fewest groups of at least so many that divide an eighth: found by their size, which is small.
    groups = eighth // next(size for size in range(eighth // groups, 0, -1) if eighth % size == 0)
    while elements % (16 * groups) == 0 and elements > groups * TARGET_QUANT_GROUP:
        groups *= 2
    return groups


def _reductions(engine: Engine) -> Iterator[Collective]:
    """Gradients of every micro-step: reduce-scattered, or all-reduced where asked and where they fit the bucket."""
    size, contiguous = engine.settings["reduce_bucket_size"], engine.settings["contiguous_gradients"]
    scattered: dict[int, tuple[Group, list[int]]] = {}
    reduced: dict[int, tuple[Group, list[int]]] = {}
    quantized: list[Param] = []
    for bucket in gradient_buckets(engine):
        elements = sum(param.numel for param in bucket)
        whole = contiguous and elements <= size and not engine.settings["reduce_scatter"]
        for group, members in _by_group(engine, tuple(bucket)):
            if whole:
                reduced.setdefault(group.ranks, (group, []))[1].append(elements)
                continue
            plain: list[Param] = []
            for param in members:
                (quantized if _goes_by_all_to_all(engine, group, param) else plain).append(param)
            if _quantizes(engine, group):
                scattered.setdefault(group.ranks, (group, []))[1].extend(
                    padded(p, group.ranks) for p in plain
                )
            elif plain:
                total = sum(padded(param, group.ranks) for param in plain)
                scattered.setdefault(group.ranks, (group, []))[1].append(total)
    for op, found in (("reduce_scatter", scattered), ("all_reduce", reduced)):
        for group, calls in found.values():
            if calls:
                yield collective(
                    engine, group, op, "grads", calls,
                    dtype=engine.comm_dtype, phase="backward", times=engine.grad_accum,
                )  # fmt: skip
    yield from _all_to_alls(engine, quantized)
    yield from _across_replicas(engine)


def _across_replicas(engine: Engine) -> Iterator[Collective]:
    """MiCS: at the end of accumulation groups all-reduce their shards, bucket by bucket."""
    for group in engine.trained:
        if group.replicas > 1:
            calls = [
                sum(ceil_div(param.numel, group.ranks) for param in members)
                for bucket in gradient_buckets(engine)
                for owner, members in _by_group(engine, tuple(bucket))
                if owner is group
            ]
            yield collective(
                engine, group, "all_reduce", "grads", calls,
                dtype=engine.accum_dtype, phase="backward", ranks=group.replicas, over="replica",
            )  # fmt: skip


def _nodes(engine: Engine, group: Group) -> tuple[int, int]:
    """Ranks on a node, and nodes, of a group."""
    per_node = min(engine.view.job.parallelism.gpus_per_node or group.ranks, group.ranks)
    return per_node, group.ranks // per_node


def _quantizes(engine: Engine, group: Group) -> bool:
    """Whether qgZ acts: it is for several nodes; on one node gradients are reduce-scattered as ever."""
    return bool(engine.settings["zero_quantized_gradients"]) and _nodes(engine, group)[1] > 1


def _goes_by_all_to_all(engine: Engine, group: Group, param: Param) -> bool:
    """Vectors, and tensors that do not divide by twice the ranks, fall back to reduce-scatter."""
    return _quantizes(engine, group) and not param.is_vector and param.numel % (2 * group.ranks) == 0


def _all_to_alls(engine: Engine, params: list[Param]) -> Iterator[Collective]:
    """qgZ: int4 values and fp32 scales, first inside a node, then the partial sums across nodes; tensor by tensor."""
    if not params:
        return
    group = engine.group_of(params[0])
    local, nodes = _nodes(engine, group)
    shapes = {name: tensor.shape for name, tensor in engine.view.layout.named_tensors()}
    scales = [max(*shapes.get(param.name, (1, 1))[:2], local * nodes) for param in params]
    rows = (
        ("grads", "int4", [param.numel for param in params], local, "node"),
        ("grads_scales", "fp32", scales, local, "node"),
        ("grads", "int4", [param.numel // local for param in params], nodes, "across_nodes"),
        ("grads_scales", "fp32", [scale // local for scale in scales], nodes, "across_nodes"),
    )
    for tensor, dtype, calls, ranks, over in rows:
        yield collective(
            engine, group, "all_to_all", tensor, calls,
            dtype=dtype, phase="backward", times=engine.grad_accum, ranks=ranks, over=over,
        )  # fmt: skip


def _scalars(engine: Engine) -> Iterator[Collective]:
    """An overflow flag in fp16 only, and one norm per sub-group: in fp64, under offload in fp32."""
    for group in engine.trained:
        if engine.param_dtype == "fp16" and group is engine.trained[0]:
            yield collective(
                engine, group, "all_reduce", "overflow_flag", [1], dtype="uint8", phase="optimizer_step"
            )
        norms = num_sub_groups(engine, group)
        dtype = "fp32" if engine.offloads_optimizer else "fp64"
        yield collective(
            engine,
            group,
            "all_reduce",
            "gradient_norm",
            [1],
            dtype=dtype,
            phase="optimizer_step",
            times=norms,
        )


def _persistent(engine: Engine, gathers: Gathers) -> Iterator[Collective]:
    """Parameters that stay whole are gathered one by one after the optimizer updated their shares."""
    for group, members in _by_group(engine, tuple(gathers.persistent)):
        calls = [padded(param, group.ranks) for param in members]
        yield collective(
            engine, group, "all_gather", "params", calls, dtype=engine.param_dtype, phase="optimizer_step"
        )
