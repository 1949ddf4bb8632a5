"""Activations and their gradients at the moments of a micro-step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zerocalc.formulas.fsdp import norm_backward_bytes
from zerocalc.formulas.registry import Applied, Summed, apply
from zerocalc.frameworks.pytorch.moments import Held

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zerocalc.activations.estimate import ActivationEstimate, LayerActivations
    from zerocalc.frameworks.pytorch.model import Setup
    from zerocalc.frameworks.terms import Plan

NORM_BACKWARD_BYTES: Mapping[tuple[str, str], int] = {
    # five fp32 tensors and the residual's gradient
    ("rms", "bf16"): 22, ("rms", "fp32"): 24, ("rms", "autocast"): 24,
    # one tensor in, one out, and the residual's gradient
    ("layer", "bf16"): 6, ("layer", "fp32"): 12, ("layer", "autocast"): 12,
}  # fmt: skip
"""Bytes per hidden element while a norm's gradient is computed, by the norm and what it computes in."""

AFTER_ATTENTION = "MLP norm"

Part = tuple[str, int, Applied]


@dataclass(frozen=True, slots=True)
class Turn:
    """One rank's activations, ready to be asked what is held when."""

    estimate: ActivationEstimate
    tokens: int
    hidden_size: int
    dtype: str
    norm: str

    def early(self) -> list[Part]:
        """What lives from the embedding on: ids and rotary tables."""
        late = {"final norm", "head input", "labels", "padded labels", "loss", "16-bit copy", "final"}
        return [
            (line.name, 1, line.applied)
            for line in self.estimate.outside
            if "held" in line.phases and not line.name.startswith(tuple(late))
        ]

    def saved(self, *, without: int = 0) -> list[Part]:
        """What all layers but `without` of them have saved."""
        parts: list[Part] = []
        for layer in self.estimate.layers:
            count = max(0, layer.count - without) * self.estimate.in_flight
            parts += [(line.name, count, line.applied) for line in layer.lines if count]
        return parts

    def stream(self) -> list[Part]:
        """The hidden states that one layer hands to the next."""
        return [("hidden states", 1, self._tensor(4 if self.dtype != "bf16" else 2))]

    def working(self) -> LayerActivations:
        """What the layer in work keeps, recomputed where it was not kept."""
        layers = self.estimate.recomputed or self.estimate.layers
        return max(layers, key=lambda layer: layer.bytes)

    def at_mlp_norm(self) -> list[Part]:
        """The layer in work when its MLP is done: attention's tensors, and a norm's gradient being computed."""
        lines = self.working().lines
        after = [i for i, line in enumerate(lines) if line.name.startswith(AFTER_ATTENTION)]
        kept = lines[: after[0] + 1] if after else lines
        return [(line.name, 1, line.applied) for line in kept] + self.norm_backward()

    def at_first_norm(self) -> list[Part]:
        """The layer in work when it is nearly done: its first norm's input and gradient."""
        first = self.working().lines[:1]
        return [(line.name, 1, line.applied) for line in first] + self.norm_backward()

    def norm_backward(self) -> list[Part]:
        """The temporaries of a norm's gradient."""
        width = NORM_BACKWARD_BYTES[self.norm, self.dtype]
        return [("gradients of a norm", 1, self._tensor(width))]

    def checkpoint(self) -> list[Part]:
        """The input from which the layer in work was computed again."""
        return self.stream() if self.estimate.recomputed else []

    def at_loss(self, moment: str) -> list[Part]:
        """Everything held while the loss (`forward_end`) or its gradient (`loss_backward`) is computed."""
        lines = (*self.estimate.outside, *self.estimate.loss)
        return self.saved() + [(line.name, 1, line.applied) for line in lines if moment in line.phases]

    def _tensor(self, bytes_per_hidden: int) -> Applied:
        return apply(
            norm_backward_bytes,
            tokens=self.tokens,
            hidden_size=self.hidden_size,
            bytes_per_hidden=bytes_per_hidden,
        )


def turn_of(setup: Setup) -> Turn | None:
    """The activations of a job, or None when the batch or the model's shape is not known."""
    view, dtype = setup.view, _dtype(setup)
    architecture, work = view.job.model.architecture, view.job.workload
    if (
        architecture is None
        or architecture.dimensions is None
        or work.micro_batch is None
        or work.seq_len is None
    ):
        return None
    from zerocalc.activations.tables import RECIPES
    from zerocalc.frameworks.activations import estimate_activations

    estimate = estimate_activations(view, setup.settings, dtype=dtype)
    if estimate is None or not estimate.layers:
        return None
    norm = RECIPES[architecture.dimensions.recipe].norm
    tokens = work.micro_batch * -(-work.seq_len // view.job.parallelism.cp)
    family = "layer" if norm == "layer" else "rms"
    return Turn(estimate, tokens, architecture.dimensions.hidden_size, dtype, family)


def _dtype(setup: Setup) -> str:
    """What layers compute in: FSDP casts parameters, DDP leaves them and autocasts."""
    if setup.autocast:
        return "autocast"
    return "fp32" if setup.types.compute in {"fp32", "fp64"} else "bf16"


def held(name: str, parts: list[Any]) -> list[Held]:
    """Parts as one term, or nothing."""
    return [Held(name, Summed(tuple(parts)))] if parts else []


def say_activations(setup: Setup, answer: Plan) -> None:
    """Which kernels the activations are those of."""
    if any(term.name.startswith("activations") for term in answer.terms):
        settings, attention = setup.settings, setup.view.job.workload.attention
        answer.assumptions.append(
            f"activations of {settings['activations']} kernels with {attention} attention on "
            f"{settings['activation_device']}, loss {settings['loss']} (--set activations=, activation_device=, loss=)"
        )
