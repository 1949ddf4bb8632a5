"""The activations of one rank: what layers keep, what comes back, what stands outside; and the sums at each moment."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from zerocalc.records import Record
from zerocalc.units import largest

if TYPE_CHECKING:
    from zerocalc.activations.rows import Checkpointing
    from zerocalc.formulas.loss import Count, Line, Phase


@dataclass(eq=False, repr=False)
class LayerActivations(Record):
    """What each of `count` equal layers keeps for one micro-batch."""

    kind: str
    count: int
    lines: tuple[Line, ...]

    @property
    def bytes(self) -> Count:
        """Bytes of one layer."""
        return sum(line.bytes for line in self.lines)


@dataclass(eq=False, repr=False)
class ActivationEstimate(Record):
    """The activations of one rank; every number is in whole bytes.

    The peak of a step's turn is the largest of three moments: `forward_peak_bytes` while the loss is computed,
    `loss_backward_peak_bytes` while its gradient is, and `backward_peak_bytes` while the last layer is computed again.
    """

    layers: tuple[LayerActivations, ...]
    """What a layer keeps under the chosen checkpointing, by kind of layer."""
    recomputed: tuple[LayerActivations, ...]
    """What comes back while one layer of each kind is computed again; empty without checkpointing."""
    outside: tuple[Line, ...]
    """Embeddings, final norm, head, labels: live whatever the checkpointing."""
    loss: tuple[Line, ...]
    in_flight: Count
    """Micro-batches whose activations are held at once."""
    checkpointing: Checkpointing

    @property
    def num_layers(self) -> int:
        """Layers on this rank."""
        return sum(layer.count for layer in self.layers)

    @property
    def recompute_linear(self) -> int:
        """Extra forward passes through the matrix multiplications of the layers."""
        return int(self.checkpointing == "full")

    @property
    def recompute_attention(self) -> int:
        """Extra forward passes through the core of attention."""
        return int(self.checkpointing != "none")

    @property
    def saved_bytes(self) -> Count:
        """All layers, all micro-batches in flight."""
        return self.in_flight * sum(layer.count * layer.bytes for layer in self.layers)

    @property
    def checkpoint_bytes(self) -> Count:
        """The part of `saved_bytes` that is layer inputs kept to start a recomputation from."""
        return self.saved_bytes if self.checkpointing == "full" else 0

    @property
    def recompute_working_set_bytes(self) -> Count:
        """Bytes that come back for the layer that is being computed again, the largest kind."""
        return reduce(largest, (layer.bytes for layer in self.recomputed), 0)

    def outside_bytes_in(self, phase: Phase) -> Count:
        """Tensors outside the layers that are live in `phase`, the loss included."""
        return sum(line.bytes for line in (*self.outside, *self.loss) if phase in line.phases)

    @property
    def outside_bytes(self) -> Count:
        """Tensors outside the layers that are held at the end of the forward pass, the loss's included."""
        return self.outside_bytes_in("held")

    @property
    def held_bytes(self) -> Count:
        """Everything held at the end of the forward pass."""
        return self.saved_bytes + self.outside_bytes

    @property
    def forward_peak_bytes(self) -> Count:
        """The most that is live while the loss is computed."""
        return self.saved_bytes + self.outside_bytes_in("forward_end")

    @property
    def loss_backward_peak_bytes(self) -> Count:
        """The most that is live while the loss's gradient is computed."""
        return self.saved_bytes + self.outside_bytes_in("loss_backward")

    @property
    def backward_peak_bytes(self) -> Count:
        """The most that is live while the last layer is computed again, the loss gone."""
        return self.saved_bytes + self.recompute_working_set_bytes + self.outside_bytes_in("recompute")
