"""FSDP1's working set: gathered flat parameters, their flat gradients, and which activations are held when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocalc.formulas.fsdp import flat_gathered_bytes, flat_shard_bytes, tensor_bytes
from zerocalc.frameworks.pytorch.flat import unit_params
from zerocalc.frameworks.pytorch.moments import (
    EMBEDDING_BACKWARD,
    FORWARD_END,
    LAST_LAYER_BACKWARD,
    LAST_LAYER_FORWARD,
    LOSS_BACKWARD,
    Held,
    total,
)
from zerocalc.frameworks.pytorch.states import offload_tier
from zerocalc.frameworks.pytorch.turn import Turn, held
from zerocalc.frameworks.pytorch.units import Slot, Taking, Units, tied, trained, units_of, waiting
from zerocalc.frameworks.terms import BACKWARD_END, FORWARD_BACKWARD
from zerocalc.units import dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from zerocalc.frameworks.pytorch.model import Group, Setup

PLAIN = Taking(tensor_bytes, lambda slot: ({"num_params": m.tensor.numel} for m in slot.members))


class FlatSet:
    """One rank's flat parameters with the rules of a job."""

    def __init__(self, setup: Setup, units: Units, turn: Turn | None, *, keeps: bool) -> None:
        self.setup, self.units, self.turn, self.keeps = setup, units, turn, keeps
        self.whole = Taking(flat_gathered_bytes, self._inputs)
        self.shard = Taking(flat_shard_bytes, self._inputs)

    def _inputs(self, slot: Slot) -> Iterable[Mapping[str, int]]:
        if slot.members:
            yield {"unit_params": unit_params(self.setup, slot.members, slot.ranks), "ranks": slot.ranks}

    def gathered(self, *slots: tuple[Slot, ...]) -> list[Held]:
        """Whole flat parameters; there is no buffer beside them, and none at all where nothing is sharded."""
        joined = [slot for some in slots for slot in some if slot.ranks > 1 or self._casts]
        return self.whole.held("unsharded_params", joined, dtype_bytes(self.setup.types.compute))

    @property
    def _casts(self) -> bool:
        return self.setup.types.compute != self.setup.types.storage

    def flat_grads(self, slots: tuple[Slot, ...]) -> list[Held]:
        """Whole flat gradients, as autograd puts them together."""
        return self.whole.held("unsharded_flat_grads", trained(slots), dtype_bytes(self.setup.types.compute))

    def reduced_grads(self, slots: tuple[Slot, ...]) -> list[Held]:
        """The input of a reduction, where it is not the gradient itself: cast, or padded."""
        types = self.setup.types
        padded = [
            slot for slot in trained(slots) if unit_params(self.setup, slot.members, slot.ranks) % slot.ranks
        ]
        copied = trained(slots) if types.reduce != types.compute else padded
        return self.whole.held("reduce_scatter_input", copied, dtype_bytes(types.reduce))

    def layer_grads(self, slots: tuple[Slot, ...]) -> list[Held]:
        """Gradients of single tensors, not yet put together."""
        return PLAIN.held("unsharded_layer_grads", trained(slots), dtype_bytes(self.setup.types.compute))

    def so_far(self, slots: tuple[Slot, ...]) -> list[Held]:
        """Shards of gradients so far, where none are kept from earlier micro-steps."""
        settings = self.setup.settings
        kept = self.setup.accum > 1 and not settings["no_sync"]
        if kept or not settings["set_to_none"] or offload_tier(self.setup.view) != "gpu":
            return []
        return self.shard.held("grads_so_far", trained(slots), dtype_bytes(self.setup.types.storage))

    def layer_backward(self, *, done: int) -> list[Held]:
        """A layer whose gradients are being put together, the next one gathered already."""
        units, left = self.units, self.units.num_layers - done
        if not units.layer:
            return []
        ties = frozenset(tie.target for tie in self.setup.view.layout.ties)
        working = self.turn.checkpoint() + self.turn.at_first_norm() if self.turn else []
        saved = self.turn.saved(without=done + 1) + self.turn.early() if self.turn else []
        whole = units.layers_but(done) if self.keeps else units.some(min(2, left))
        return [
            *self.gathered(units.root, whole),
            *self.layer_grads((*units.layer, *waiting(units.root, ties))),
            *self.flat_grads(units.layer),
            *self.so_far(units.layers_but(left)),
            *held("activations", saved),
            *held("layer_backward", working),
        ]

    def root_backward(self) -> list[Held]:
        """The root's gradients are put together while it is whole; a tied matrix has two before they are added."""
        root = self.units.before
        common = [*self.gathered(root), *self.layer_grads(root), *self.so_far(self.units.layers)]
        return common + max((self.flat_grads(root), self._tied()), key=total)

    def _tied(self) -> list[Held]:
        return PLAIN.held(
            "tied_gradients", tied(self.units.root, self.setup, 2), dtype_bytes(self.setup.types.compute)
        )

    def reduced(self) -> list[Held]:
        """The last reduction, and its copy where the backend makes one."""
        root = self.units.before
        inputs = self.reduced_grads(root)
        sharded = self.setup.settings["backend"] == "gloo" and any(slot.ranks > 1 for slot in root)
        copies = [Held("reduce_scatter_copy", each.amount) for each in inputs or self.flat_grads(root)]
        return [*inputs, *self.flat_grads(root), *(copies if sharded else [])]


def flat_moments(
    setup: Setup, groups: Iterable[Group], turn: Turn | None, *, keeps: bool
) -> Mapping[str, list[Held]]:
    """What is held at each moment of a micro-step."""
    units = units_of(groups)
    flat = FlatSet(setup, units, turn, keeps=keeps)
    stay = units.layers if keeps else ()
    saved = turn.saved(without=1) + turn.early() + turn.stream() if turn else []
    return {
        LAST_LAYER_FORWARD: [*flat.gathered(units.root, stay or units.layer), *held("activations", saved)],
        FORWARD_END: [
            *flat.gathered(units.after, stay),
            *held("activations", turn.at_loss(FORWARD_END) if turn else []),
        ],
        LOSS_BACKWARD: [
            *flat.gathered(units.after, stay or units.layer),
            *held("activations", turn.at_loss(LOSS_BACKWARD) if turn else []),
        ],
        FORWARD_BACKWARD: flat.layer_backward(done=min(1, units.num_layers - 1)),
        LAST_LAYER_BACKWARD: flat.layer_backward(done=max(0, units.num_layers - 2)),
        EMBEDDING_BACKWARD: flat.root_backward(),
        BACKWARD_END: flat.reduced(),
    }
