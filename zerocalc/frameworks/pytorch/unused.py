"""What `find_unused_parameters` costs: one mark per tensor, kept twice and reduced with the last bucket."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from zerocalc.formulas.fsdp import all_reduce_call_sent_bytes, tensor_bytes
from zerocalc.formulas.registry import Grouped, apply_grouped
from zerocalc.frameworks.pytorch.model import shapes_known, trained_members
from zerocalc.frameworks.terms import ALWAYS, Collective, Term

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zerocalc.frameworks.pytorch.model import Setup

MARK_BYTES = 4
"""An int32 per tensor."""


def marks_terms(setup: Setup) -> Iterator[Term]:
    """The reducer's map of used parameters: filled on the host, reduced on the GPU."""
    if _looks(setup):
        for tier in ("cpu", "gpu"):
            yield Term(name="used_parameters", tier=tier, phases=ALWAYS, amount=_marks(setup))


def marks_messages(setup: Setup, *, ranks: int, passes: int) -> Iterator[Collective]:
    """One all-reduce of the map in every synchronised backward; it counts for nothing in the volume."""
    if not _looks(setup):
        return
    full = _marks(setup)
    sent = apply_grouped(all_reduce_call_sent_bytes, [(passes, {"full_bytes": full.value, "ranks": ranks})])
    yield Collective(
        op="all_reduce", tensor="used_parameters", dtype="int32", phase="backward", group="shard", group_size=ranks,
        count=passes, full=full, sent=sent, full_bytes_in_all=passes * int(full.value),
        volume_params=Fraction(0), inter_node_volume_params=0,
    )  # fmt: skip


def _looks(setup: Setup) -> bool:
    return setup.settings["find_unused_parameters"] and shapes_known(setup.view)


def _marks(setup: Setup) -> Grouped:
    tensors = sum(1 for _ in trained_members(setup.view))
    return apply_grouped(tensor_bytes, [(1, {"num_params": tensors, "element_bytes": MARK_BYTES})])
