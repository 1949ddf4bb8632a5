"""The units of a sharded model by their place in the turn, and what gathering or reducing some of them takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from zerocalc.formulas.registry import apply_grouped
from zerocalc.frameworks.pytorch.model import Group, Member, used_order
from zerocalc.frameworks.pytorch.moments import Held

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from zerocalc.frameworks.pytorch.model import Setup

ATTENTION = frozenset({"self_attn", "attn", "attention", "self_attention"})


@dataclass(frozen=True, slots=True)
class Slot:
    """`count` equal units over the ranks of a group."""

    count: int
    ranks: int
    members: tuple[Member, ...]
    name: str

    def take(self, count: int) -> Slot:
        """The same unit, another number of times."""
        return replace(self, count=max(0, count))


@dataclass(frozen=True, slots=True)
class Units:
    """The trained model's units: all layers, one of the largest kind, and what stands around them."""

    layers: tuple[Slot, ...]
    layer: tuple[Slot, ...]
    root: tuple[Slot, ...]
    first: tuple[Slot, ...]
    last: tuple[Slot, ...]

    @property
    def num_layers(self) -> int:
        """Layers on this rank; a layer of experts and the rest of it are one."""
        counts = {slot.name: slot.count for slot in self.layers}
        return sum(counts.values())

    def layers_but(self, number: int) -> tuple[Slot, ...]:
        """All layers but `number` of the largest kind."""
        name = self.layer[0].name if self.layer else ""
        return tuple(slot.take(slot.count - number) if slot.name == name else slot for slot in self.layers)

    def some(self, number: int) -> tuple[Slot, ...]:
        """So many layers of the largest kind."""
        return tuple(slot.take(number) for slot in self.layer)

    @property
    def before(self) -> tuple[Slot, ...]:
        """What is whole while the first layer runs."""
        return self.root + self.first

    @property
    def after(self) -> tuple[Slot, ...]:
        """What is whole while the last layer and the head run."""
        return self.root + self.last


def units_of(groups: Iterable[Group]) -> Units:
    """Sort the units of the trained model by their place."""
    own = [group for group in groups if not group.forward_only]
    slots = [
        (block, Slot(block.count, group.ranks, block.members, block.name))
        for group in own
        for block in group.blocks
    ]

    def at(role: str) -> tuple[Slot, ...]:
        return tuple(slot for block, slot in slots if block.role == role)

    layers = at("layer")
    names = list(dict.fromkeys(slot.name for slot in layers))
    largest = max(
        names, key=lambda name: sum(_size(slot) for slot in layers if slot.name == name), default=""
    )
    layer = tuple(slot.take(1) for slot in layers if slot.name == largest)
    return Units(layers, layer, at("root"), at("first"), at("last"))


def _size(slot: Slot) -> int:
    return sum(member.tensor.numel for member in slot.members)


class Taking(NamedTuple):
    """How units take up memory: the formula, and its inputs for the members of a unit."""

    formula: Callable[..., Any]
    inputs: Callable[[Slot], Iterable[Mapping[str, Any]]]

    def held(self, name: str, slots: Iterable[Slot], element_bytes: Any) -> list[Held]:
        """Bytes of some units as one named amount, or nothing."""
        groups = [
            (slot.count, {**inputs, "element_bytes": element_bytes})
            for slot in slots
            if slot.count
            for inputs in self.inputs(slot)
        ]
        return [Held(name, apply_grouped(self.formula, groups))] if groups else []


def trained(slots: Iterable[Slot]) -> tuple[Slot, ...]:
    """Only the tensors that get gradients."""
    return tuple(replace(slot, members=tuple(m for m in slot.members if m.part.trainable)) for slot in slots)


def waiting(slots: Iterable[Slot], ties: frozenset[str]) -> tuple[Slot, ...]:
    """The tensors of the root whose gradients arrive before the layers': all but the embedding, unless it is the head."""

    def early(member: Member) -> bool:
        return member.tensor.name in ties or member.tensor.kind not in {"embedding", "position"}

    return tuple(replace(s, members=tuple(m for m in s.members if early(m))) for s in trained(slots))


def tied(slots: Iterable[Slot], setup: Setup, copies: int) -> tuple[Slot, ...]:
    """So many copies of the matrices that embedding and head share."""
    ties = {tie.target for tie in setup.view.layout.ties}
    return tuple(
        replace(slot, count=copies, members=tuple(m for m in slot.members if m.tensor.name in ties))
        for slot in trained(slots)
    )


def after_attention(slots: Iterable[Slot]) -> tuple[Slot, ...]:
    """The tensors of a layer whose gradients arrive before its attention's."""
    answer = []
    for slot in trained(slots):
        used = used_order([member.tensor for member in slot.members])
        places = [index for index, tensor in enumerate(used) if tensor.name.partition(".")[0] in ATTENTION]
        late = {id(tensor) for tensor in used[: places[-1] + 1]} if places else set()
        answer.append(replace(slot, members=tuple(m for m in slot.members if id(m.tensor) not in late)))
    return tuple(answer)
