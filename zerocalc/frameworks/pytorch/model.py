"""The job as PyTorch sees it: element types, and the tensors that share a sharding group in their units."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from zerocalc.layout import Layout, Tensor, Unit
from zerocalc.rank import Part, RankView
from zerocalc.units import dtype_bytes

if TYPE_CHECKING:
    from fractions import Fraction

    from zerocalc.frameworks.terms import Plan

Settings = dict[str, Any]
Role = Literal["layer", "root", "first", "last", "whole"]
NO_DTYPE = "none"

USE_ORDER = (
    "input_layernorm",
    "self_attn",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "mlp",
    "post_feedforward_layernorm",
)
"""Children of a layer in the order they are used, for families that register their norms last."""


class Types(NamedTuple):
    """Element types: at rest, gathered for computing (none: as stored), reduced (none: as computed), of moments."""

    storage: str
    param_dtype: str
    reduce_dtype: str
    moment: str

    @property
    def compute(self) -> str:
        """Element type of whole parameters and of the gradients that autograd makes."""
        return self.storage if self.param_dtype == NO_DTYPE else self.param_dtype

    @property
    def reduce(self) -> str:
        """Element type of gradients on the wire."""
        return self.compute if self.reduce_dtype == NO_DTYPE else self.reduce_dtype

    def resting_bytes(self, part: Part) -> int | Fraction:
        """Bytes of one resting parameter: trained ones in the storage type, others as the job says."""
        return dtype_bytes(self.storage if part.trainable else part.param_dtype)


@dataclass(frozen=True, slots=True)
class Setup:
    """One rank class of a job, with every setting's value and the element types that follow."""

    view: RankView
    settings: Settings
    types: Types
    autocast: bool = False
    """Whether parameters are computed with as they rest, cast operation by operation."""

    @property
    def accum(self) -> int:
        """Micro-steps per optimizer step."""
        return self.view.job.workload.grad_accum


def setup_of(view: RankView, settings: Settings, *, casts: bool) -> Setup:
    """Put together what an implementation needs to know; one that `casts` parameters needs no autocast."""
    types = types_of(view, settings)
    return Setup(
        view, settings, types, autocast=settings["autocast"] or (not casts and types.compute != types.storage)
    )


def types_of(view: RankView, settings: Settings) -> Types:
    """Element types of a job: a precision with master weights rests in them and computes in its parameter type."""
    precision = view.job.precision
    mixed = precision.master_dtype is not None
    origin = view.job.origins.get("reduce_dtype", "default")
    asked = None if origin.startswith(("default", "preset")) else precision.reduce_dtype
    return Types(
        storage=settings["storage_dtype"] or precision.master_dtype or precision.param_dtype,
        param_dtype=settings["param_dtype"] or (precision.param_dtype if mixed else NO_DTYPE),
        reduce_dtype=settings["reduce_dtype"] or asked or ("fp32" if mixed else NO_DTYPE),
        moment=settings["storage_dtype"] or precision.moment_dtype,
    )


class Member(NamedTuple):
    """One tensor and the part that says how it is held."""

    tensor: Tensor
    part: Part


@dataclass(frozen=True, slots=True)
class Block:
    """Tensors that are gathered and reduced together; `count` equal ones."""

    name: str
    members: tuple[Member, ...]
    count: int = 1
    role: Role = "layer"
    """A layer; the root, whole from its forward to its backward; or a unit used only first or last."""
    stays: bool = False
    """Whether the wrapping policy keeps it whole after forward."""

    @property
    def is_root(self) -> bool:
        """Whether it is the outermost unit, which PyTorch treats differently."""
        return self.role == "root"

    @property
    def trained(self) -> tuple[Member, ...]:
        """The tensors that get gradients."""
        return tuple(member for member in self.members if member.part.trainable)


@dataclass(frozen=True, slots=True)
class Group:
    """The blocks of one model that are dealt over the same ranks."""

    ranks: int
    replicas: int
    blocks: tuple[Block, ...]
    forward_only: bool = False
    """True for a further model that is only evaluated."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts whose tensors are here, each once."""
        return tuple({m.part.name: m.part for block in self.blocks for m in block.members}.values())

    def tensors(self, part: Part) -> Iterator[tuple[int, Tensor]]:
        """A part's tensors with how often each occurs."""
        for block in self.blocks:
            for member in block.members:
                if member.part.name == part.name:
                    yield block.count, member.tensor


class Place(NamedTuple):
    """Where a wrapping policy puts a unit of the layout: a block of its own per layer, or one shared block."""

    block: str
    role: Role
    stays: bool = False


def per_layer(unit: Unit, _after_layers: bool) -> Place:
    """Each layer is a unit, everything else belongs to the root."""
    return Place(f"{unit.name}.{unit.first}", "layer") if unit.is_layer else Place("root", "root")


def root_only(_unit: Unit, _after_layers: bool) -> Place:
    """One unit for the whole model."""
    return Place("root", "root")


def as_torchtitan(unit: Unit, after_layers: bool) -> Place:
    """The embedding, each layer, and the final norm with the head, which stays whole after forward."""
    if unit.is_layer:
        return Place(f"{unit.name}.{unit.first}", "layer")
    return Place("norm and head", "last", stays=True) if after_layers else Place("embedding", "first")


WRAPS: Mapping[str, Callable[[Unit, bool], Place]] = {
    "layers": per_layer,
    "root_only": root_only,
    "torchtitan": as_torchtitan,
}


def own_parts(view: RankView) -> list[Part]:
    """The parts of the trained model, its adapter among them."""
    return [part for part in view.parts if not part.forward_only]


def shapes_known(view: RankView) -> bool:
    """Whether every part of the trained model is exactly the tensors of a layout."""
    return view.shape_known and all(part.num_params == part.layout.num_params for part in own_parts(view))


def groups_of(view: RankView, wrap: str) -> list[Group]:
    """The sharding groups of a rank: the trained model's, dense and expert apart where they differ, then the others'."""
    answer = []
    for key in dict.fromkeys((int(part.shard_ranks), int(part.replicas)) for part in own_parts(view)):
        names = {part.name for part in own_parts(view) if (part.shard_ranks, part.replicas) == key}
        answer.append(Group(*key, blocks=tuple(_blocks(_sources(view), WRAPS[wrap], names))))
    for part in view.parts:
        if part.forward_only:
            blocks = tuple(
                _blocks([(part.layout, {"dense": part, "expert": part})], WRAPS[wrap], {part.name})
            )
            answer.append(Group(int(part.shard_ranks), int(part.replicas), blocks, forward_only=True))
    return answer


def trained_members(view: RankView) -> Iterator[Member]:
    """Every trained tensor in the order of registration."""
    for layout, part_of in _sources(view):
        for _, unit in layout.blocks():
            for tensor in unit.tensors:
                if part_of[tensor.part].trainable:
                    yield Member(tensor, part_of[tensor.part])


Source = tuple[Layout, Mapping[str, Part]]


def _sources(view: RankView) -> list[Source]:
    """The layouts that make up the trained model, and whose part each of their tensors is."""
    own = own_parts(view)
    if not shapes_known(view):
        return [(_one_tensor(part), {"dense": part, "expert": part}) for part in own]
    kinds: dict[str, Part] = {}
    for part in own:
        if part.name != "adapter":
            kinds |= {tensor.part: part for tensor, _ in part.layout.grouped()}
    adapters: list[Source] = [(p.layout, {"dense": p, "expert": p}) for p in own if p.name == "adapter"]
    return [(view.layout, kinds), *adapters]


def _one_tensor(part: Part) -> Layout:
    """A part whose shapes are unknown, as one flat tensor."""
    return Layout(
        units=(Unit("model", (Tensor(part.name, (int(part.num_params),), kind="other"),)),), anonymous=True
    )


def _blocks(
    sources: Iterable[Source], wrap: Callable[[Unit, bool], Place], names: set[str]
) -> Iterator[Block]:
    """The blocks of some layouts, restricted to the parts with the given names."""
    members: dict[Place, list[Member]] = {}
    counts: dict[Place, int] = {}
    shaped = True
    for layout, part_of in sources:
        after_layers = False
        shaped &= not layout.anonymous
        for unit in layout.units:
            place = wrap(unit, after_layers)
            after_layers |= unit.is_layer
            here = [Member(t, part_of[t.part]) for t in unit.tensors if part_of[t.part].name in names]
            own = place.role == "layer"
            members.setdefault(place, []).extend(here if own else here * unit.count)
            counts[place] = unit.count if own else 1
    for place, found in members.items():
        if found:
            role = place.role if shaped else "whole"
            yield Block(place.block, tuple(found), counts[place], role, place.stays)


def used_order(tensors: Sequence[Tensor]) -> list[Tensor]:
    """A layer's tensors as forward uses them; those of other units stand in the order of registration."""
    places = [tensor.name.partition(".")[0] for tensor in tensors]
    if not set(places) <= set(USE_ORDER):
        return list(tensors)
    return sorted(tensors, key=lambda tensor: USE_ORDER.index(tensor.name.partition(".")[0]))


def local_layout(tensors: Iterable[tuple[int, Tensor]]) -> Layout:
    """A layout of one rank's own tensors, for rules that depend on their shapes."""
    return Layout(units=tuple(Unit("local", (tensor,), count=count) for count, tensor in tensors))


def say_sharded(setup: Setup, answer: Plan, name: str) -> None:
    """What was assumed about a sharded model, and what its count alone does not tell."""
    types = setup.types
    gathered = "" if types.compute == types.storage else f", are gathered as {types.compute}"
    answer.assumptions.append(
        f"{name}: parameters, gradients and optimizer states rest in {types.storage}{gathered}; "
        f"gradients are reduced in {types.reduce}"
    )
    if not shapes_known(setup.view):
        answer.excluded.append(
            "padding, units and what is gathered at once (need tensor shapes, not just a count)"
        )
