"""FSDP2's working set: what is gathered, what waits to be reduced, and which activations are held at each moment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from zerocalc.formulas.fsdp import gathered_rows_bytes, padded_rows_bytes, tensor_bytes
from zerocalc.frameworks.pytorch.fsdp2_cuts import rows_of
from zerocalc.frameworks.pytorch.moments import (
    BACKWARD_START,
    EMBEDDING_BACKWARD,
    FIRST_LAYER_FORWARD,
    FORWARD_END,
    LAST_LAYER_BACKWARD,
    LAST_LAYER_FORWARD,
    LOSS_BACKWARD,
    ROOT_REDUCTION,
    Held,
    total,
)
from zerocalc.frameworks.pytorch.states import offload_tier
from zerocalc.frameworks.pytorch.turn import Turn, held
from zerocalc.frameworks.pytorch.units import (
    Slot,
    Taking,
    Units,
    after_attention,
    tied,
    trained,
    units_of,
    waiting,
)
from zerocalc.frameworks.terms import BACKWARD_END, FORWARD_BACKWARD
from zerocalc.units import dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from zerocalc.frameworks.pytorch.model import Group, Member, Setup

WHOLE = Taking(gathered_rows_bytes, lambda slot: (rows_of(m.tensor, slot.ranks) for m in slot.members))
SHARD = Taking(padded_rows_bytes, lambda slot: (rows_of(m.tensor, slot.ranks) for m in slot.members))
PLAIN = Taking(tensor_bytes, lambda slot: ({"num_params": m.tensor.numel} for m in slot.members))


@dataclass(frozen=True, slots=True)
class WorkingSet:
    """One rank's units with the rules of a job."""

    setup: Setup
    units: Units
    turn: Turn | None
    keeps: bool
    """Whether layers stay whole from forward to backward."""
    kept_over: int | None
    """Ranks over which they stay dealt instead, for an integer `reshard_after_forward`."""
    root_leaves: bool
    """Whether the root is freed after forward, and so gathered again as backward begins."""
    replicated: bool
    """Whether shards are all-reduced between replicas."""

    def moments(self) -> Mapping[str, list[Held]]:
        """What is held at each moment of a micro-step."""
        return {
            FIRST_LAYER_FORWARD: self._first_layer_forward(),
            LAST_LAYER_FORWARD: self._last_layer_forward(),
            FORWARD_END: self._loss(FORWARD_END, buffers=self._last_gathered()),
            LOSS_BACKWARD: self._loss(LOSS_BACKWARD, buffers=() if self.keeps else self.units.layer),
            BACKWARD_START: self._loss("held", buffers=self.units.root) if self.root_leaves else [],
            FORWARD_BACKWARD: self._layer_backward(done=min(1, self.units.num_layers - 1)),
            LAST_LAYER_BACKWARD: self._layer_backward(done=max(0, self.units.num_layers - 2)),
            EMBEDDING_BACKWARD: self._embedding_backward(),
            ROOT_REDUCTION: self._root_reduction(),
            BACKWARD_END: self._reducing(self.units.before),
        }

    # What is gathered and reduced

    def _whole(self, *slots: tuple[Slot, ...]) -> list[Held]:
        joined = tuple(slot for some in slots for slot in some)
        return WHOLE.held("unsharded_params", joined, dtype_bytes(self.setup.types.compute))

    def _buffers(self, slots: Iterable[Slot]) -> list[Held]:
        return WHOLE.held("all_gather_buffers", slots, dtype_bytes(self.setup.types.compute))

    def _reducing(self, slots: Iterable[Slot]) -> list[Held]:
        return WHOLE.held("reduce_scatter_input", trained(slots), dtype_bytes(self.setup.types.reduce))

    def _gradients(self, slots: Iterable[Slot]) -> list[Held]:
        return PLAIN.held("unsharded_layer_grads", slots, dtype_bytes(self.setup.types.compute))

    def _reduced_grads(self, slots: Iterable[Slot]) -> list[Held]:
        """Shards of gradients so far, where none are kept from earlier micro-steps."""
        settings = self.setup.settings
        kept = self.setup.accum > 1 and settings["requires_gradient_sync"]
        if kept or not settings["set_to_none"] or offload_tier(self.setup.view) != "gpu":
            return []
        return SHARD.held("grads_so_far", trained(slots), dtype_bytes(self.setup.types.storage))

    def _from_before(self) -> list[Held]:
        """What earlier micro-steps leave: whole gradients in the reduce type, or the input of their last reduction."""
        if self.setup.accum == 1:
            return []
        if self.setup.settings["requires_gradient_sync"]:
            return self._reducing(self.units.before)
        slots = trained((*self.units.before, *self.units.layers, *self.units.last))
        return PLAIN.held("unsharded_grads", slots, dtype_bytes(self.setup.types.reduce))

    def _last_gathered(self) -> tuple[Slot, ...]:
        return self.units.layer or self.units.root

    def _between(self, layers: tuple[Slot, ...]) -> list[Held]:
        """Layers that wait for backward dealt over a smaller group."""
        if self.kept_over is None:
            return []
        over = tuple(replace(slot, ranks=self.kept_over) for slot in layers)
        return SHARD.held("resharded_params", over, dtype_bytes(self.setup.types.compute))

    def _stay(self, layers: tuple[Slot, ...]) -> tuple[Slot, ...]:
        return layers if self.keeps else ()

    # The moments

    def _first_layer_forward(self) -> list[Held]:
        units = self.units
        early = self.turn.early() + self.turn.stream() if self.turn else []
        return [
            *self._whole(units.before, units.layer),
            *self._buffers(units.before + units.layer),
            *self._from_before(),
            *held("activations", early),
        ]

    def _last_layer_forward(self) -> list[Held]:
        units = self.units
        if not units.layer:
            return []
        saved = self.turn.saved(without=1) + self.turn.early() + self.turn.stream() if self.turn else []
        whole = (units.root, units.layers) if self.keeps else (units.root, units.layer)
        return [
            *self._whole(*whole),
            *self._buffers(units.some(min(2, units.num_layers))),
            *self._between(units.layers_but(1)),
            *self._from_before(),
            *held("activations", saved),
        ]

    def _loss(self, moment: str, *, buffers: tuple[Slot, ...]) -> list[Held]:
        units = self.units
        return [
            *self._whole(units.after, self._stay(units.layers)),
            *self._buffers(buffers),
            *self._between(units.layers),
            *self._from_before(),
            *held("activations", self.turn.at_loss(moment) if self.turn else []),
        ]

    def _layer_backward(self, *, done: int) -> list[Held]:
        """The layer after `done` others, when its MLP or all of it has gradients, whichever takes more."""
        units = self.units
        if not units.layer:
            return []
        left = units.num_layers - done
        common = [
            *self._whole(units.root, self._stay(units.layers_but(done)) or units.layer),
            *self._buffers(() if self.keeps or left == 1 else units.layer),
            *self._reducing(units.layer if done else ()),
            *self._between(units.layers_but(done + 1)),
            *self._reduced_grads(units.layers_but(left)),
            *(self._from_before() if done <= 1 and not self.setup.settings["requires_gradient_sync"] else []),
            *held("activations", self._left(done)),
        ]
        return common + max((self._mlp_done(), self._layer_done()), key=total)

    def _left(self, done: int) -> list[Any]:
        return self.turn.saved(without=done + 1) + self.turn.early() if self.turn else []

    def _mlp_done(self) -> list[Held]:
        slots = (*self._waiting(), *after_attention(self.units.layer))
        parts = self.turn.checkpoint() + self.turn.at_mlp_norm() if self.turn else []
        return [*self._gradients(slots), *held("layer_backward", parts)]

    def _layer_done(self) -> list[Held]:
        slots = (*self._waiting(), *trained(self.units.layer))
        parts = self.turn.checkpoint() + self.turn.at_first_norm() if self.turn else []
        return [*self._gradients(slots), *held("layer_backward", parts)]

    def _waiting(self) -> tuple[Slot, ...]:
        return waiting(self.units.root, self._ties)

    @property
    def _ties(self) -> frozenset[str]:
        return frozenset(tie.target for tie in self.setup.view.layout.ties)

    def _embedding_backward(self) -> list[Held]:
        """The root's gradients are all there; a tied matrix has two before they are added."""
        return [
            *self._whole(self.units.before),
            *self._reducing(self.units.layer),
            *self._reduced_grads(self.units.layers),
            *self._gradients(trained(self.units.before)),
            *PLAIN.held(
                "tied_gradients", tied(self.units.root, self.setup, 2), dtype_bytes(self.setup.types.compute)
            ),
        ]

    def _root_reduction(self) -> list[Held]:
        """The root's reduction: gradients copied into its input, or the input copied again by the backend."""
        root = self.units.before
        common = [*self._reducing(root), *self._reduced_grads(self.units.layers), *self._all_reduced()]
        return common + max((self._gradients(trained(root)), self._reduced_by_copy(root)), key=total)

    def _all_reduced(self) -> list[Held]:
        """Buffers of the layers' all-reduces, which stay until backward is over where they are not the gradients."""
        types = self.setup.types
        if not self.replicated or (types.reduce == types.storage and self.setup.accum == 1):
            return []
        return SHARD.held("all_reduce_buffers", trained(self.units.layers), dtype_bytes(types.reduce))

    def _reduced_by_copy(self, root: tuple[Slot, ...]) -> list[Held]:
        """What gloo holds beside the input of a reduction; an embedding's gradient outlives its use."""
        types, settings = self.setup.types, self.setup.settings
        if settings["backend"] != "gloo":
            return []
        kept = types.compute if settings["requires_gradient_sync"] or self.setup.accum == 1 else types.reduce
        return [
            *WHOLE.held("reduce_scatter_copy", trained(root), dtype_bytes(types.reduce)),
            *SHARD.held("reduce_scatter_output", trained(root), dtype_bytes(types.reduce)),
            *PLAIN.held("embedding_gradients", self._untied_embeddings(root), dtype_bytes(kept)),
        ]

    def _untied_embeddings(self, root: tuple[Slot, ...]) -> tuple[Slot, ...]:
        def kept(member: Member) -> bool:
            return member.tensor.kind == "embedding" and member.tensor.name not in self._ties

        return tuple(
            replace(slot, members=tuple(m for m in slot.members if kept(m))) for slot in trained(root)
        )


def working_set(
    setup: Setup,
    groups: Iterable[Group],
    turn: Turn | None,
    *,
    keeps: bool,
    kept_over: int | None,
    root_leaves: bool,
) -> WorkingSet:
    """The working set of a job's trained model."""
    own = [group for group in groups if not group.forward_only]
    replicated = any(group.replicas > 1 for group in own)
    return WorkingSet(setup, units_of(own), turn, keeps, kept_over, root_leaves, replicated)
