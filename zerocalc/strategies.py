"""Strategies are rows: which states are sharded, over which group, and what is sent when.

The names of other libraries stand for one of these rows. Adding a strategy adds a row, no branch anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from zerocalc.errors import unknown_name
from zerocalc.records import Record

State = Literal["params", "grads", "optimizer_states"]
Op = Literal["all_reduce", "reduce_scatter", "all_gather", "all_to_all"]
Group = Literal["shard", "replica", "secondary", "node", "across_nodes"]

LEGS: dict[str, int] = {
    "all_reduce": 2, "reduce_scatter": 1, "all_gather": 1, "all_to_all": 1, "reduce": 1, "broadcast": 1,
}  # fmt: skip
"""Times round the ring: an all-reduce is a reduce-scatter and an all-gather."""


@dataclass(eq=False, repr=False)
class Pass(Record):
    """One collective over a state: how often per optimizer step, in which group, in which part of the step."""

    op: Op
    tensor: Literal["params", "grads"]
    phase: Literal["forward", "backward", "optimizer_step"]
    every: Literal["micro_step", "step"]
    group: Group = "shard"
    only_trainable: bool = True
    """False where frozen parameters travel too (gathers of sharded parameters)."""
    of_shard: bool = False
    """True where only a rank's own shard travels (the all-reduce between replicas)."""
    setting: str | None = None
    """The setting that turns this pass on; a row with the same phase and tensor and no setting gives way to it."""
    wire_dtype: str | None = None
    """Quantised element type on the wire; null sends the state's own type."""
    intra_node: bool = False
    """True where the paper counts nothing across nodes for this pass."""


@dataclass(eq=False, repr=False)
class Strategy(Record):
    """What one strategy shards and sends."""

    name: str
    label: str
    shards: frozenset[State]
    passes: tuple[Pass, ...]
    sharding_group: Literal["all", "group"] = "all"
    """`all`: every data-parallel rank; `group`: the given group size, so shards do not shrink with more ranks."""
    offload: frozenset[State] = frozenset()
    """States that may rest outside the GPU."""
    stands_for: str = ""


def _grads(op: Op, every: Literal["micro_step", "step"]) -> Pass:
    return Pass(op, "grads", "backward", every)


_UPDATED_PARAMS = Pass("all_gather", "params", "optimizer_step", "step")
_GATHERS = (
    Pass("all_gather", "params", "forward", "micro_step", only_trainable=False),
    Pass("all_gather", "params", "backward", "micro_step", only_trainable=False),
)
_ZERO3 = (*_GATHERS, _grads("reduce_scatter", "micro_step"))
_ALL: frozenset[State] = frozenset({"params", "grads", "optimizer_states"})
_BELOW_ZERO3: frozenset[State] = frozenset({"grads", "optimizer_states"})

STRATEGIES: dict[str, Strategy] = {
    row.name: row
    for row in (
        Strategy("ddp", "DDP", frozenset(), (_grads("all_reduce", "step"),), stands_for="nothing is sharded"),
        Strategy(
            "zero1",
            "ZeRO-1",
            frozenset({"optimizer_states"}),
            (_grads("reduce_scatter", "step"), _UPDATED_PARAMS),
            offload=_BELOW_ZERO3,
            stands_for="optimizer states are sharded",
        ),
        Strategy(
            "zero2",
            "ZeRO-2",
            _BELOW_ZERO3,
            (_grads("reduce_scatter", "micro_step"), _UPDATED_PARAMS),
            offload=_BELOW_ZERO3,
            stands_for="gradients and optimizer states are sharded",
        ),
        Strategy(
            "zero3",
            "ZeRO-3",
            _ALL,
            _ZERO3,
            offload=_ALL,
            stands_for="parameters, gradients and optimizer states are sharded",
        ),
        Strategy(
            "hsdp",
            "HSDP",
            _ALL,
            (*_ZERO3, Pass("all_reduce", "grads", "backward", "micro_step", "replica", of_shard=True)),
            sharding_group="group",
            offload=_ALL,
            stands_for="everything is sharded within a group and replicated across groups",
        ),
        Strategy(
            "mics",
            "MiCS",
            _ALL,
            (*_ZERO3, Pass("all_reduce", "grads", "backward", "step", "replica", of_shard=True)),
            sharding_group="group",
            offload=frozenset({"params"}),
            stands_for="everything is sharded within a group; groups reduce once a step",
        ),
        Strategy(
            "zeropp",
            "ZeRO++",
            _ALL,
            (
                *_ZERO3,
                Pass(
                    "all_gather", "params", "forward", "micro_step",
                    only_trainable=False, setting="qwz", wire_dtype="int8",
                ),
                Pass(
                    "all_gather", "params", "backward", "micro_step", "secondary",
                    only_trainable=False, setting="hpz", intra_node=True,
                ),
                Pass(
                    "all_to_all", "grads", "backward", "micro_step", "node",
                    setting="qgz", wire_dtype="int4", intra_node=True,
                ),
                Pass(
                    "all_to_all", "grads", "backward", "micro_step", "across_nodes",
                    of_shard=True, setting="qgz", wire_dtype="int4",
                ),
            ),
            offload=_ALL,
            stands_for="ZeRO-3 with quantised gathers, a secondary shard inside the node and quantised gradients",
        ),
    )
}  # fmt: skip

COMPARED = ("ddp", "zero1", "zero2", "zero3")

ALIASES = {
    "fsdp": "zero3", "full_shard": "zero3", "fsdp2": "zero3", "fully_shard": "zero3",
    "shard_grad_op": "zero2", "no_shard": "ddp", "hybrid_shard": "hsdp",
    "zero-1": "zero1", "zero-2": "zero2", "zero-3": "zero3", "zero0": "ddp", "dp": "ddp",
    "zero++": "zeropp", "zeroplusplus": "zeropp",
}  # fmt: skip


def strategy_named(name: str) -> Strategy:
    """Find a strategy by its name or by what FSDP calls it. Raises UnknownNameError with the near names."""
    key = name.strip().lower()
    found = STRATEGIES.get(ALIASES.get(key, key)) or STRATEGIES.get(ALIASES.get(key.replace("-", "_"), ""))
    if found is None:
        raise unknown_name(
            "strategy", name, [*STRATEGIES, *ALIASES], hint=f"one of {', '.join(STRATEGIES)}; fsdp is zero3"
        )
    return found


def read_as(typed: str) -> str | None:
    """What a name of another library stands for, as a sentence; None for a strategy's own name."""
    row = strategy_named(typed)
    own = typed.strip().lower() in {row.name, row.name.replace("zero", "zero-")}
    return None if own else f"{typed} read as {row.name}: {row.stands_for}"
