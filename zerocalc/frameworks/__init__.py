"""Whose implementation answers. Each module turns one rank's view of a job into terms and collectives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from zerocalc.errors import unknown_name

if TYPE_CHECKING:
    from zerocalc.frameworks.settings import Setting
    from zerocalc.frameworks.terms import Plan
    from zerocalc.rank import RankView
    from zerocalc.specs.job import Job


class Framework(NamedTuple):
    """Where a framework lives and what it is."""

    module: str
    description: str


FRAMEWORKS: dict[str, Framework] = {
    "paper": Framework("zerocalc.frameworks.paper", "the papers' ideal (ZeRO, ZeRO-Offload, ZeRO-Infinity)"),
    "megatron": Framework(
        "zerocalc.frameworks.megatron", "Megatron-LM: the distributed optimizer with TP, PP, CP and EP"
    ),
    "pytorch": Framework(
        "zerocalc.frameworks.pytorch", "PyTorch's DDP, ZeroRedundancyOptimizer, FSDP2 and FSDP1"
    ),
    "deepspeed": Framework(
        "zerocalc.frameworks.deepspeed", "DeepSpeed's engine as shipped (0.19), stages 0 to 3"
    ),
    "deepspeed-estimator": Framework(
        "zerocalc.frameworks.deepspeed_estimator",
        "what DeepSpeed's own estimate_zero*_model_states_mem_needs prints",
    ),
}


class FrameworkModule(Protocol):
    """What every framework module offers."""

    SETTINGS: Sequence[Setting]
    STRATEGIES: frozenset[str]
    """The strategies it can do; the others are rows with the reason."""
    INAPPLICABLE: Mapping[str, str]
    """Reasons of its own for strategies that it cannot do; optional."""
    plan: Callable[[RankView], Plan]


def framework_named(name: str) -> FrameworkModule:
    """Load a framework's module. Raises UnknownNameError with the near names."""
    row = FRAMEWORKS.get(name.strip().lower())
    if row is None:
        raise unknown_name("framework", name, list(FRAMEWORKS), hint=f"one of {', '.join(FRAMEWORKS)}")
    return cast("FrameworkModule", import_module(row.module))


def prepared(job: Job) -> Job:
    """The job as its framework lays it out: a padded vocabulary, uneven pipeline stages. Most change nothing."""
    prepare = getattr(framework_named(job.framework), "prepare", None)
    return cast("Job", prepare(job)) if prepare else job
