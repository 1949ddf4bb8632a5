"""Moments of a step as terms: what is held at each of them, besides what is held at all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from zerocalc.frameworks.terms import BACKWARD_END, FORWARD_BACKWARD, Evaluated, Term

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FIRST_LAYER_FORWARD = "first_layer_forward"
LAST_LAYER_FORWARD = "last_layer_forward"
FORWARD_END = "forward_end"
LOSS_BACKWARD = "loss_backward"
BACKWARD_START = "backward_start"
LAST_LAYER_BACKWARD = "last_layer_backward"
EMBEDDING_BACKWARD = "embedding_backward"
ROOT_REDUCTION = "root_reduction"

FORWARD = (FIRST_LAYER_FORWARD, LAST_LAYER_FORWARD, FORWARD_END)
BACKWARD = (
    LOSS_BACKWARD,
    BACKWARD_START,
    FORWARD_BACKWARD,
    LAST_LAYER_BACKWARD,
    EMBEDDING_BACKWARD,
    ROOT_REDUCTION,
)
TURN = (*FORWARD, *BACKWARD)
"""The moments of a micro-step that can be its peak, in order. `forward_backward` is the turn: the second layer's
backward, when nearly all activations are still held; `backward_end` comes after them."""


class Held(NamedTuple):
    """Named bytes at one moment."""

    name: str
    amount: Evaluated


def total(moment: Iterable[Held]) -> int:
    """Bytes of a moment."""
    return sum(each.amount.value for each in moment)


def terms_of(moments: Mapping[str, Iterable[Held]]) -> list[Term]:
    """One term per name and amount, live at every moment that holds it; nothing is counted twice at one moment."""
    merged: list[tuple[Held, list[str]]] = []
    for phase in (*TURN, BACKWARD_END):
        for held in moments.get(phase, ()):
            if not held.amount.value:
                continue
            alike = next((phases for other, phases in merged if _alike(held, other)), None)
            if alike is None:
                merged.append((held, [phase]))
            else:
                alike.append(phase)
    return [Term(name=held.name, amount=held.amount, phases=tuple(phases)) for held, phases in merged]


def _alike(held: Held, other: Held) -> bool:
    """Whether two moments hold the same thing."""
    same_name = held.name == other.name and held.amount.expression == other.amount.expression
    return same_name and bool(held.amount.value == other.amount.value)


def spread(terms: Iterable[Term], moments: Iterable[Term]) -> list[Term]:
    """All terms together; what is live throughout the turn is live at each of its modelled moments."""
    found = list(moments)
    phases = [phase for phase in (*TURN, BACKWARD_END) if any(phase in term.phases for term in found)]
    whole = [
        replace(term, phases=tuple(dict.fromkeys((*term.phases, *phases))))
        if FORWARD_BACKWARD in term.phases
        else term
        for term in terms
    ]
    return whole + found
