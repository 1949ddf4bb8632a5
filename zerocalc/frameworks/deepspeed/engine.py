"""A job as DeepSpeed's engine sees it: stage, element types, parameter groups, what is offloaded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from math import ceil
from typing import TYPE_CHECKING, Any

from zerocalc.frameworks.deepspeed.modules import Module, Param, gradient_order, module_tree
from zerocalc.frameworks.terms import AT_REST, BACKWARD_END, FORWARD_BACKWARD, INITIALIZATION, OPTIMIZER_STEP
from zerocalc.units import dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from zerocalc.layout import Layout
    from zerocalc.rank import Part, RankView

STAGES = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "mics": 3, "zeropp": 3}
SIXTEEN_BITS = frozenset({"bf16", "fp16"})

FORWARD = "forward"
"""The forward pass before the loss: parameters are gathered, activations grow."""
BACKWARD = "backward"
"""The backward pass while its first layer is computed: the loss is gone, the reduce buckets are there."""
UPCAST = "gradient_upcast"
"""The optimizer step while gradients are flattened and cast to the master weights' type."""
TURN = (FORWARD, FORWARD_BACKWARD, BACKWARD)
"""Forward and backward: what accumulates from micro-step to micro-step is live throughout."""
RESIDENT = (INITIALIZATION, AT_REST, *TURN, BACKWARD_END, UPCAST, OPTIMIZER_STEP)
STEADY = RESIDENT[1:]
IN_BACKWARD = (BACKWARD, BACKWARD_END)


@dataclass(frozen=True, slots=True)
class Group:
    """Parameters with one fate: one of the optimizer's parameter groups, or frozen ones."""

    name: str
    params: tuple[Param, ...]
    ranks: int
    replicas: int
    trainable: bool
    dtype: str

    @property
    def numel(self) -> int:
        """Elements, without padding."""
        return sum(param.numel for param in self.params)


@dataclass(frozen=True)
class Engine:
    """Everything the stages ask about a job."""

    view: RankView
    settings: Mapping[str, Any]
    groups: tuple[Group, ...]
    others: tuple[Part, ...]
    """Further models on the same GPUs."""

    @property
    def stage(self) -> int:
        """DeepSpeed's stage number."""
        return STAGES[self.view.strategy.name]

    @property
    def param_dtype(self) -> str:
        """Element type of the parameters that compute."""
        return self.view.job.precision.param_dtype

    @property
    def accum_dtype(self) -> str:
        """Element type in which gradients accumulate."""
        return str(self.settings["grad_accum_dtype"] or self.view.job.precision.grad_dtype)

    @property
    def comm_dtype(self) -> str:
        """Element type of gradients on the wire: the parameters' unless asked otherwise, however gradients accumulate.

        Below stage 3 sequence parallelism forces fp32.
        """
        if self.view.job.parallelism.cp > 1 and self.stage in (1, 2):
            return "fp32"
        job = self.view.job
        asked = not job.origins.get("reduce_dtype", "default").startswith(("default", "preset"))
        default = job.precision.reduce_dtype if asked else self.param_dtype
        return str(self.settings["communication_data_type"] or default)

    @property
    def master_dtype(self) -> str:
        """Element type of the copy that the optimizer updates: made even when the parameters are fp32."""
        for dtype in ("bf16", "fp16"):
            if self.settings[f"{dtype}_master_weights_and_grads"]:
                return dtype
        given = self.view.job.precision.master_dtype
        return given if given in SIXTEEN_BITS and self.stage else "fp32"

    @property
    def moment_dtype(self) -> str:
        """Element type of the optimizer's moments."""
        bf16 = self.settings["bf16_optimizer_states"]
        return (
            "bf16"
            if bf16 or (self.view.job.precision.moment_dtype == "bf16" and self.low_precision_master)
            else "fp32"
        )

    @property
    def low_precision_master(self) -> bool:
        """Whether master weights and their gradients are kept in 16 bits."""
        return self.master_dtype in SIXTEEN_BITS

    @property
    def has_master(self) -> bool:
        """Whether the optimizer updates a copy: always but for fp32 at stage 0."""
        return self.stage > 0 or self.param_dtype in SIXTEEN_BITS

    @property
    def grad_accum(self) -> int:
        """Micro-steps per optimizer step."""
        return self.view.job.workload.grad_accum

    @property
    def offloads_optimizer(self) -> bool:
        """Whether optimizer states rest on the host or on NVMe."""
        return self.view.job.offload.optimizer != "none"

    @property
    def overlaps(self) -> bool:
        """Whether reduction overlaps the backward pass; only stage 3 does by default."""
        given = self.settings["overlap_comm"]
        return self.stage == 3 if given is None else bool(given)

    @property
    def uses_bf16_optimizer(self) -> bool:
        """Stage 1 in bf16 with fp32 accumulation is another optimizer: it keeps all fp32 gradients."""
        mixed = self.param_dtype == "bf16" and self.accum_dtype == "fp32"
        return self.stage == 1 and mixed and not self.offloads_optimizer

    @property
    def counts_steps(self) -> bool:
        """Whether the optimizer keeps a step counter in a tensor."""
        return self.settings["optimizer_class"] == "adamw" and self.view.job.optimizer.name.startswith("adam")

    @property
    def trained(self) -> tuple[Group, ...]:
        """The optimizer's parameter groups."""
        return tuple(group for group in self.groups if group.trainable)

    @cached_property
    def shapes_known(self) -> bool:
        """Whether the groups hold the model's own tensors, so that their order means something."""
        return self.view.shape_known and {p.name for g in self.groups for p in g.params} >= {
            name for name, _ in self.view.layout.named_tensors()
        }

    @property
    def largest_layer_tensor(self) -> int:
        """Elements of the largest tensor of a layer: gradients leave for the bucket one by one."""
        layers = [unit for unit in self.view.layout.units if unit.is_layer] or self.view.layout.units
        return max(tensor.numel for unit in layers for tensor in unit.tensors)

    @property
    def layouts(self) -> tuple[tuple[Layout, bool], ...]:
        """The model's tensors and an adapter's, and whether each is frozen."""
        trains_model = any(group.name != "adapter" for group in self.trained)
        adapters = [part.layout for part in self.view.parts if part.name == "adapter"]
        own = self.view.layout if trains_model else _packed(self.view.layout, *self.packing)
        return ((own, not trains_model), *((layout, False) for layout in adapters))

    @property
    def packing(self) -> tuple[str, str]:
        """The element types of the frozen base: its own, and that of the tensors it is stored in."""
        return packing_of(self.view)

    @cached_property
    def root(self) -> Module:
        """The model's modules in the order they run, an adapter's inside them."""
        return _modules(self.layouts)[0]

    @property
    def gradient_order(self) -> tuple[Param, ...]:
        """Its trained parameters in the order their gradients are complete."""
        return _modules(self.layouts)[1]

    def bytes_of(self, dtype: str) -> int | Fraction:
        """Bytes of one element; a Fraction for types below one byte."""
        return dtype_bytes(dtype)

    def group_of(self, param: Param) -> Group:
        """The group that a parameter belongs to."""
        return self._owners[param.name]

    @cached_property
    def _owners(self) -> dict[str, Group]:
        return {param.name: group for group in self.groups for param in group.params}


@lru_cache(maxsize=64)
def _modules(layouts: tuple[tuple[Layout, bool], ...]) -> tuple[Module, tuple[Param, ...]]:
    """The modules of some layouts and their gradients' order: the same for every batch, degree and budget of a search."""
    root = module_tree(layouts)
    return root, tuple(gradient_order(root))


def engine_of(view: RankView, settings: Mapping[str, Any]) -> Engine:
    """Resolve a rank class into what the engine would build."""
    own = tuple(part for part in view.parts if not part.forward_only)
    others = tuple(part for part in view.parts if part.forward_only)
    return Engine(view, settings, tuple(_groups(view, own)), others)


def _groups(view: RankView, parts: tuple[Part, ...]) -> Iterator[Group]:
    """Parts as groups; dense and expert parameters that the same ranks share are one, in the model's own order."""
    joined = {part.name for part in parts if part.name in {"dense", "expert"}}
    whole = all(_is_whole(part) for part in parts if part.name in joined)
    if len(joined) == 2 and whole and len({part.shard_ranks for part in parts if part.name in joined}) == 1:
        first = next(part for part in parts if part.name == "dense")
        yield _group(first, _expanded(view.layout))
        parts = tuple(part for part in parts if part.name not in joined)
    for part in parts:
        if _is_whole(part) and not part.trainable and is_packed(view):
            stored = replace(part, param_dtype=packing_of(view)[1])
            yield _group(stored, _expanded(_packed(part.layout, *packing_of(view))))
        else:
            yield _group(part, _expanded(part.layout) if _is_whole(part) else _lump(part))


def packing_of(view: RankView) -> tuple[str, str]:
    """The element type of a frozen base and the type of the tensors it is stored in.

    bitsandbytes packs values into tensors of `bnb_4bit_quant_storage`, which stage 3 needs to be the parameters' type.
    """
    precision = view.job.precision
    return precision.frozen_dtype, precision.param_dtype


def is_packed(view: RankView) -> bool:
    """Whether a frozen base holds several values per element of what is partitioned and gathered."""
    held, stored = packing_of(view)
    return dtype_bytes(held) < dtype_bytes(stored)


@lru_cache(maxsize=64)
def _packed(layout: Layout, held: str, stored: str) -> Layout:
    """A layout as it is stored: a matrix of 4-bit values in 16-bit elements is a column of a fourth as many."""
    ratio = Fraction(dtype_bytes(held)) / dtype_bytes(stored)
    if ratio >= 1:
        return layout
    units = (
        replace(
            unit,
            tensors=tuple(
                replace(t, shape=(ceil(t.numel * ratio), *(1,) * (len(t.shape) - 1))) for t in unit.tensors
            ),
        )
        for unit in layout.units
    )
    return replace(layout, units=tuple(units))


def _is_whole(part: Part) -> bool:
    return not part.layout.anonymous and part.layout.num_params == part.num_params


def _lump(part: Part) -> tuple[Param, ...]:
    return (Param(part.name, int(part.num_params), False, part.trainable),)


@lru_cache(maxsize=64)
def _expanded(layout: Layout) -> tuple[Param, ...]:
    return tuple(Param(name, t.numel, len(t.shape) < 2) for name, t in layout.named_tensors())


def _group(part: Part, params: tuple[Param, ...]) -> Group:
    return Group(
        part.name, params, int(part.shard_ranks), int(part.replicas), part.trainable, part.param_dtype
    )
