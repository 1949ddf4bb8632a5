"""A model as the tensors it is made of: repeated units of named shapes. Every count follows from here.

Plain dataclasses, not pydantic: a layout is built thousands of times by sweeps and read by every framework.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod
from typing import Literal

from zerocalc.records import Record
from zerocalc.units import DTYPE_BITS

Part = Literal["dense", "expert"]
Kind = Literal[
    "embedding", "position", "head", "matrix", "router", "shared_expert", "expert", "norm", "bias", "other"
]


@dataclass(eq=False, repr=False)
class Tensor(Record):
    """One parameter: its name inside the unit, its shape, what it is, and how tensor parallelism splits it."""

    name: str
    shape: tuple[int, ...]
    kind: Kind = "matrix"
    tp_axis: int | None = None
    """The dimension that tensor parallelism divides (Megatron's rule); None where every rank keeps it whole."""
    transposed: bool = False
    """True for a linear layer stored as [in, out] (GPT-2's Conv1D) instead of [out, in]."""

    @property
    def numel(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def part(self) -> Part:
        """Which group shards it: routed experts over the expert group, everything else over the dense one."""
        return "expert" if self.kind == "expert" else "dense"

    @property
    def module(self) -> str:
        """The module that owns it directly."""
        return self.name.rpartition(".")[0]


HELD_BITS = DTYPE_BITS | {
    **{f"{kind}{bits}": bits for kind in ("int", "uint", "i", "u") for bits in (8, 16, 32, 64)},
    **dict.fromkeys(("bool", "f8_e4m3", "f8_e5m2", "f8_e8m0", "f8_e4m3fnuz", "f8_e5m2fnuz"), 8),
    "c64": 64, "f6_e2m3": 6, "f6_e3m2": 6, "f4": 4,
}  # fmt: skip
"""What buffers are made of besides: ids, masks, scales, by PyTorch's and by safetensors' names."""


def held_bytes(dtype: str) -> int | Fraction:
    """Bytes of one element of a parameter or a buffer; a Fraction for types below one byte."""
    bits = HELD_BITS[dtype]
    return bits // 8 if bits % 8 == 0 else Fraction(bits, 8)


@dataclass(eq=False, repr=False)
class Buffer(Record):
    """A tensor that is held but not trained: rotary tables, router corrections."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "fp32"
    persistent: bool = False
    count: int = 1
    """How many layers hold one each; `*` in the name stands for their index."""

    @property
    def numel(self) -> int:
        """Number of elements of one of them."""
        return prod(self.shape)

    @property
    def element_bytes(self) -> int | Fraction:
        """Bytes of one element; a Fraction for types below one byte."""
        return held_bytes(self.dtype)


@dataclass(eq=False, repr=False)
class Unit(Record):
    """`count` equal, consecutive blocks of tensors; `is_layer` when a framework wraps each block on its own.

    The blocks of a stack are named `name.0`, `name.1`, … from `first`; a unit outside the stacks stands alone and
    its tensors carry their full names.
    """

    name: str
    tensors: tuple[Tensor, ...]
    count: int = 1
    first: int = 0
    is_layer: bool = False
    layer_class: str = ""

    @property
    def numel(self) -> int:
        """Parameters of one block."""
        return sum(tensor.numel for tensor in self.tensors)

    def prefix(self, index: int) -> str:
        """What stands before the names of block `index` (0-based within this unit)."""
        return f"{self.name}.{self.first + index}." if self.is_layer else ""


@dataclass(eq=False, repr=False)
class Tie(Record):
    """Two names for one parameter: `name` shares the storage of `target` and is counted once."""

    name: str
    target: str


@dataclass(eq=False, repr=False)
class Layout(Record):
    """A model's units in registration order (each parameter once), its ties and its buffers."""

    units: tuple[Unit, ...]
    ties: tuple[Tie, ...] = ()
    buffers: tuple[Buffer, ...] = ()
    anonymous: bool = False
    """True for a bare count: one tensor without a shape, from which nothing shape-dependent may be read."""

    @property
    def num_params(self) -> int:
        """All parameters, tied matrices once."""
        return sum(unit.numel * unit.count for unit in self.units)

    def num_params_where(self, *kinds: Kind) -> int:
        """Parameters of the given kinds."""
        return sum(tensor.numel * count for tensor, count in self.grouped() if tensor.kind in kinds)

    def num_part_params(self, part: Part) -> int:
        """Parameters of one sharding group."""
        return sum(tensor.numel * count for tensor, count in self.grouped() if tensor.part == part)

    @property
    def num_layers(self) -> int:
        """Blocks over all stacks."""
        return sum(unit.count for unit in self.units if unit.is_layer)

    def grouped(self) -> Iterator[tuple[Tensor, int]]:
        """Every distinct tensor with how often it occurs."""
        for unit in self.units:
            for tensor in unit.tensors:
                yield tensor, unit.count

    def blocks(self) -> Iterator[tuple[str, Unit]]:
        """Every block in order, repeated ones expanded, with its name prefix."""
        for unit in self.units:
            for index in range(unit.count):
                yield unit.prefix(index), unit

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every parameter with its full name, in registration order."""
        for prefix, unit in self.blocks():
            for tensor in unit.tensors:
                yield prefix + tensor.name, tensor

    @property
    def largest_unit(self) -> int:
        """Parameters of the largest block."""
        return max(unit.numel for unit in self.units)

    @property
    def largest_tensor(self) -> Tensor:
        """The parameter with most elements (the first of equals)."""
        return max((tensor for tensor, _ in self.grouped()), key=lambda tensor: tensor.numel)

    @property
    def largest_module(self) -> tuple[str, int]:
        """The module that directly owns most parameters, and how many: DeepSpeed's `largest layer`.

        A tied matrix counts in each module that holds it.
        """
        owned: dict[str, int] = {}
        sizes: dict[str, int] = {}
        for unit in self.units:
            prefix = unit.prefix(0)
            for tensor in unit.tensors:
                module = prefix + tensor.module if tensor.module else prefix.rstrip(".")
                owned[module] = owned.get(module, 0) + tensor.numel
                sizes[prefix + tensor.name] = tensor.numel
        for tie in self.ties:
            module = tie.name.rpartition(".")[0]
            owned[module] = owned.get(module, 0) + sizes.get(tie.target, 0)
        return max(owned.items(), key=lambda item: item[1])


def anonymous_layout(num_params: int, *, num_expert_params: int = 0) -> Layout:
    """The layout of a bare count: one dense tensor without a shape, and one of experts when there are any."""
    dense = Tensor("params", (num_params - num_expert_params,), kind="other")
    expert = Tensor("experts", (num_expert_params,), kind="expert")
    tensors = (dense, expert) if num_expert_params else (dense,)
    return Layout(units=(Unit("model", tensors),), anonymous=True)


@dataclass(eq=False, repr=False)
class Dimensions(Record):
    """The sizes that activations and FLOPs depend on. `recipe` names the row of activation terms that applies."""

    recipe: str
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    vocab_size: int
    gated_mlp: bool = False
    tied: bool = False
    num_experts: int = 0
    experts_per_token: int = 0
    num_moe_layers: int = 0
    moe_ffn_size: int = 0
    shared_ffn_size: int = 0
    dropout: float = 0.0
    attention_dropout: float | None = None
    """Of attention's scores, where it has its own rate; null means `dropout`."""
    embedding_dropout: float | None = None
    """Of the embedding, where it has its own rate; null means `dropout`."""
    has_position_table: bool = False
    v_head_dim: int | None = None
    """Width of one value head where it differs from the query's (multi-head latent attention)."""


@dataclass(eq=False, repr=False)
class Architecture(Record):
    """What a config.json says: the layout, the sizes for activations, and what had to be assumed."""

    model_type: str
    layout: Layout
    dimensions: Dimensions | None = None
    assumptions: tuple[str, ...] = field(default=())
