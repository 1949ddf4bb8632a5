"""The job as one rank sees it: which tensors it holds after tensor, pipeline and expert parallelism.

Ranks that hold the same form a rank class; pipeline stages make several.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from zerocalc.errors import SpecError, UsageError
from zerocalc.records import Record
from zerocalc.stages import stage_layouts
from zerocalc.strategies import Strategy, strategy_named
from zerocalc.units import ceil_div, dtype_bytes

if TYPE_CHECKING:
    from zerocalc.layout import Dimensions, Kind, Layout
    from zerocalc.specs.job import Job, ModelSpec, Parallelism


LINEAR_KINDS: tuple[Kind, ...] = ("matrix", "shared_expert", "expert")
"""Weights that FP8 training copies: neither embedding, head, router, norms nor biases."""


@dataclass(eq=False, repr=False)
class Part(Record):
    """Parameters that share a fate: the same sharding group, element types, and whether they are trained."""

    name: str
    num_params: Any
    """On this rank, before data-parallel sharding."""
    shard_ranks: Any
    """Ranks over which a sharded state of this part is dealt."""
    replicas: Any
    """Groups that hold the same shards (HSDP, MiCS)."""
    trainable: bool
    param_dtype: str
    grad_dtype: str
    reduce_dtype: str
    layout: Layout
    """The part's tensors on this rank."""

    @property
    def param_bytes(self) -> int | Fraction:
        """Bytes of one parameter."""
        return dtype_bytes(self.param_dtype)

    @property
    def grad_bytes(self) -> int | Fraction:
        """Bytes of one gradient element as held."""
        return dtype_bytes(self.grad_dtype)

    @property
    def forward_only(self) -> bool:
        """Whether it belongs to a further model, held beside the trained one: nothing of it runs backward."""
        return ":" in self.name

    @property
    def shapes_known(self) -> bool:
        """Whether the layout's tensors are the part's own: not where some of them are trained and some are not."""
        return not self.layout.anonymous and bool(self.layout.num_params == self.num_params)

    @property
    def num_linear_params(self) -> Any:
        """Weights of the layers' matrix multiplications, by their share of the layout; all of a bare count."""
        if self.layout.anonymous:
            return self.num_params
        weights = self.layout.num_params_where(*LINEAR_KINDS)
        return ceil_div(self.num_params * weights, self.layout.num_params)


@dataclass(eq=False, repr=False)
class RankView(Record):
    """One rank class: what a framework needs to know to say what its ranks hold and send."""

    name: str
    num_ranks: int
    job: Job
    strategy: Strategy
    parts: tuple[Part, ...]
    layout: Layout
    """The trained model's tensors on this rank."""
    stage: int = 0
    """Pipeline stage of the class's first rank."""
    is_last_stage: bool = True
    """Whether the class includes the last pipeline stage, which has the output layer."""

    @property
    def shape_known(self) -> bool:
        """Whether tensor shapes are known, not just a count."""
        return not self.layout.anonymous

    @property
    def dimensions(self) -> Dimensions | None:
        """The sizes that activations and FLOPs depend on, where the model's config gave them."""
        architecture = self.job.model.architecture
        return None if architecture is None else architecture.dimensions

    @property
    def num_model_params(self) -> Any:
        """Parameters of the trained model on this rank, before sharding."""
        return sum(part.num_params for part in self.parts if not part.forward_only)


def check_parallelism(parallelism: Parallelism) -> None:
    """Refuse degrees that do not divide the world. Raises UsageError naming the flags."""
    p = parallelism
    if p.world_size % (p.tp * p.pp * p.cp):
        raise UsageError(
            f"--gpus {p.world_size} is not divisible by tp·pp·cp = {p.tp}·{p.pp}·{p.cp} = {p.tp * p.pp * p.cp}",
            hint="world size = dp·tp·pp·cp; give --dp instead of --gpus, or change a degree",
        )
    if p.world_size % (p.ep * p.etp * p.pp):
        raise UsageError(
            f"--gpus {p.world_size} is not divisible by ep·etp·pp = {p.ep}·{p.etp}·{p.pp} = {p.ep * p.etp * p.pp}",
            hint="experts are sharded over world / (ep·etp·pp) ranks",
        )


def rank_views(job: Job) -> list[RankView]:
    """One view per rank class of a job. Raises UsageError where degrees or group sizes do not divide."""
    check_parallelism(job.parallelism)
    strategy = strategy_named(job.strategy)
    stages = stage_layouts(job.model.layout, job.parallelism)
    others = [_other_parts(model, job, strategy) for model in job.also]
    return [
        RankView(
            name="all" if len(stages) == 1 else _stage_name(numbers),
            num_ranks=job.parallelism.world_size // job.parallelism.pp * len(numbers),
            job=job,
            strategy=strategy,
            parts=tuple(_parts(layout, job, strategy, numbers[0]))
            + tuple(p for parts in others for p in parts),
            layout=layout,
            stage=numbers[0],
            is_last_stage=numbers[-1] == job.parallelism.pp - 1,
        )
        for numbers, layout in stages
    ]


def _stage_name(numbers: Sequence[int]) -> str:
    """`stage 0` or `stages 1-14`."""
    if len(numbers) == 1:
        return f"stage {numbers[0]}"
    contiguous = numbers[-1] - numbers[0] + 1 == len(numbers)
    return f"stages {numbers[0]}-{numbers[-1]}" if contiguous else f"stages {','.join(map(str, numbers))}"


def sharding_group(strategy: Strategy, parallelism: Parallelism, part: str) -> tuple[Any, Any]:
    """Ranks that share one copy of a part's states, and how many such groups replicate it."""
    ranks = parallelism.expert_shard_size if part == "expert" else parallelism.shard_size
    if strategy.sharding_group == "all":
        return ranks, 1
    group = parallelism.sharding_group_size or parallelism.gpus_per_node
    if group is None:
        raise UsageError(
            f"{strategy.name} needs the size of its sharding group",
            hint="give --shard-size N, or --node / --gpus-per-node to shard within a node",
        )
    group = min(group, ranks)
    if ranks % group:
        raise UsageError(
            f"--shard-size {group} does not divide the {ranks} ranks that hold the same parameters"
        )
    return group, ranks // group


def _part(
    name: str, kind: str, num_params: Any, job: Job, strategy: Strategy, layout: Layout, *, trainable: bool
) -> Part:
    ranks, replicas = sharding_group(strategy, job.parallelism, kind)
    precision = job.precision
    return Part(
        name=name,
        num_params=num_params,
        shard_ranks=ranks,
        replicas=replicas,
        trainable=trainable,
        param_dtype=precision.param_dtype if trainable else precision.frozen_dtype,
        grad_dtype=precision.grad_dtype,
        reduce_dtype=precision.reduce_dtype,
        layout=layout,
    )


def _parts(layout: Layout, job: Job, strategy: Strategy, stage: int) -> Iterator[Part]:
    """The trained model's parts: dense and expert, each trained or frozen, and LoRA's adapter."""
    model = job.model
    if model.adapter is not None:
        local = next(
            share for numbers, share in stage_layouts(model.adapter, job.parallelism) if stage in numbers
        )
        yield _part("adapter", "dense", local.num_params, job, strategy, local, trainable=True)
    frozen = _frozen_params(model, layout)
    for kind in ("dense", "expert"):
        total = layout.num_part_params("dense" if kind == "dense" else "expert")
        untrained = frozen[kind]
        here = _only(layout, kind)
        if total - untrained > 0:
            yield _part(kind, kind, total - untrained, job, strategy, here, trainable=True)
        if untrained > 0:
            name = "frozen" if kind == "dense" else "frozen_expert"
            yield _part(name, kind, untrained, job, strategy, here, trainable=False)


def _only(layout: Layout, kind: str) -> Layout:
    if all(tensor.part == kind for tensor, _ in layout.grouped()):
        return layout
    units = (replace(u, tensors=tuple(t for t in u.tensors if t.part == kind)) for u in layout.units)
    return replace(layout, units=tuple(unit for unit in units if unit.tensors))


def _frozen_params(model: ModelSpec, layout: Layout) -> dict[str, Any]:
    """How many of this rank's dense and expert parameters are frozen: dense ones first become trainable."""
    dense, expert = layout.num_part_params("dense"), layout.num_part_params("expert")
    if model.adapter is not None:
        return {"dense": dense, "expert": expert}
    if model.num_trainable_params is None:
        return {"dense": 0, "expert": 0}
    if model.num_trainable_params > model.num_params:
        raise SpecError(
            f"--trainable: {model.num_trainable_params:,} is more than the model's {model.num_params:,} parameters"
        )
    trainable = ceil_div(model.num_trainable_params * (dense + expert), model.num_params)
    return {"dense": max(0, dense - trainable), "expert": max(0, min(expert, dense + expert - trainable))}


def _other_parts(model: ModelSpec, job: Job, strategy: Strategy) -> list[Part]:
    """A further model's parts on the rank class that holds most of it."""
    _, layout = max(stage_layouts(model.layout, job.parallelism), key=lambda item: item[1].num_params)
    return [
        _part(f"{model.role}:{model.name}", kind, total, job, strategy, _only(layout, kind), trainable=False)
        for kind, total in (
            ("dense", layout.num_part_params("dense")),
            ("expert", layout.num_part_params("expert")),
        )
        if total
    ]
