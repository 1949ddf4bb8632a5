"""Collectives from the elements of their calls."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING

from zerocalc.formulas.communication import all_reduce_sent_bytes, leg_sent_bytes
from zerocalc.formulas.deepspeed import element_bytes
from zerocalc.formulas.registry import apply_grouped
from zerocalc.frameworks.terms import Collective
from zerocalc.strategies import LEGS
from zerocalc.units import DTYPE_BITS, dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zerocalc.frameworks.deepspeed.engine import Engine, Group

_BITS = {**DTYPE_BITS, "uint8": 8}
SCALARS = frozenset({"overflow_flag", "gradient_norm"})


def collective(
    engine: Engine,
    group: Group,
    op: str,
    tensor: str,
    calls: Iterable[int],
    *,
    dtype: str,
    phase: str,
    times: int = 1,
    ranks: int | None = None,
    over: str = "shard",
) -> Collective:
    """Calls of one kind; `calls` are the elements of each, or how often each is, made `times` times per optimizer step."""
    size = group.ranks if ranks is None else ranks
    counted = {elements: times * count for elements, count in Counter(calls).items()}
    width = dtype_bytes(dtype) if dtype in DTYPE_BITS else 1
    full = apply_grouped(
        element_bytes,
        [(count, {"num_elements": n, "bytes_per_element": width}) for n, count in counted.items()],
    )
    formula = all_reduce_sent_bytes if op == "all_reduce" else leg_sent_bytes
    sent = apply_grouped(
        formula,
        [(1, {"count": count, "full_bytes": int(n * width), "ranks": size}) for n, count in counted.items()],
    )
    volume = _volume(engine, op, tensor, dtype, sum(n * count for n, count in counted.items()))
    return Collective(
        op=op, tensor=tensor, dtype=dtype, part=group.name, phase=phase, group=over, group_size=size,
        count=sum(counted.values()), full=full, full_bytes_in_all=full.value, sent=sent, volume_params=volume,
        inter_node_volume_params=0 if _in_node(engine, size, over) else volume,
    )  # fmt: skip


def _volume(engine: Engine, op: str, tensor: str, dtype: str, elements: int) -> Fraction:
    """Multiples of Ψ times the size of the element that is sent, less where quantised; scalars count for nothing."""
    if tensor in SCALARS:
        return Fraction(0)
    narrower = min(Fraction(1), Fraction(_BITS[dtype], _BITS[engine.param_dtype]))
    return LEGS.get(op, 1) * narrower * elements / int(engine.view.num_model_params)


def _in_node(engine: Engine, ranks: int, over: str) -> bool:
    per_node = engine.view.job.parallelism.gpus_per_node
    return per_node is not None and over not in {"replica", "across_nodes"} and ranks <= per_node
