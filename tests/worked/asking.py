"""What a user asks: an estimate, its terms, what it sends; and the small models that examples are about."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zerocalc
from zerocalc.layout import Architecture, Layout, Tensor, Unit

if TYPE_CHECKING:
    from zerocalc.results import Memory, StrategyResult


SCRATCH = tempfile.TemporaryDirectory(prefix="zerocalc-worked-")


def estimate(model: Any, **words: Any) -> StrategyResult:
    """The one result of `zerocalc estimate`."""
    (result,) = zerocalc.estimate(zerocalc.job(model, **words)).results
    return result


def memory(model: Any, **words: Any) -> Memory:
    held = estimate(model, **words).memory
    assert held is not None
    return held


def states(model: Any, **words: Any) -> int:
    return memory(model, **words).gpu.model_states_bytes


def terms(result: StrategyResult, *, tier: str = "gpu", **wanted: str) -> int:
    """Bytes of a tier's terms that match."""
    assert result.memory is not None
    held = getattr(result.memory, tier).terms
    return sum(t.bytes for t in held if all(getattr(t, key) == value for key, value in wanted.items()))


def bytes_of(result: StrategyResult, name: str) -> list[int]:
    """Bytes of every GPU term of a name."""
    assert result.memory is not None
    return [term.bytes for term in result.memory.gpu.terms if term.name == name]


def sent(model: Any, **words: Any) -> int:
    moved = estimate(model, **words).communication
    assert moved is not None
    return moved.sent_bytes_per_rank


def moved(result: StrategyResult, field: str, **wanted: Any) -> int:
    """A figure of the collectives that match, summed."""
    assert result.communication is not None
    rows = result.communication.collectives
    return sum(
        getattr(r, field) for r in rows if all(getattr(r, key) == value for key, value in wanted.items())
    )


def config(**keys: Any) -> str:
    """A config.json on disk, and its path."""
    text = json.dumps(keys, sort_keys=True)
    path = Path(SCRATCH.name) / f"{abs(hash(text))}.json"
    path.write_text(text)
    return str(path)


def with_layout(layout: Layout, **words: Any) -> StrategyResult:
    """The estimate of a model of given tensors."""
    job = zerocalc.job(layout.num_params, **words)
    model = job.model.model_copy(update={"architecture": Architecture("given", layout)})
    (result,) = zerocalc.estimate(job.model_copy(update={"model": model})).results
    return result


def one_block(num_params: int) -> Layout:
    """All parameters in one wrapped block, so that no root keeps any."""
    return Layout((Unit("blocks", (Tensor("weight", (num_params,)),), is_layer=True),))


def two_matrices() -> Layout:
    """The model of the measured runs: two wrapped matrices of 262,144 parameters."""
    return Layout((Unit("blocks", (Tensor("weight", (512, 512)),), count=2, is_layer=True),))


def states_of(result: StrategyResult) -> int:
    return result.memory.gpu.model_states_bytes if result.memory else 0


def full(result: StrategyResult, op: str, group: int | None = None) -> int:
    return moved(result, "full_bytes", op=op, **({} if group is None else {"group_size": group}))
