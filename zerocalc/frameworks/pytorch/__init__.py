"""PyTorch's implementations: DistributedDataParallel, ZeroRedundancyOptimizer, FSDP2 (fully_shard) and FSDP1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocalc.errors import UsageError
from zerocalc.frameworks.pytorch import ddp, fsdp1, fsdp2, zero_redundancy
from zerocalc.frameworks.pytorch.model import types_of
from zerocalc.frameworks.pytorch.settings import SETTINGS
from zerocalc.frameworks.pytorch.states import loaded_model
from zerocalc.frameworks.settings import resolve_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from zerocalc.frameworks.pytorch.model import Settings
    from zerocalc.frameworks.terms import Plan
    from zerocalc.rank import RankView

__all__ = ["SETTINGS", "STRATEGIES", "plan", "rank_states"]

IMPLEMENTATIONS: Mapping[tuple[str, int], Callable[..., Plan]] = {
    ("ddp", 2): ddp.plan,
    ("zero1", 2): zero_redundancy.plan,
    ("zero2", 2): fsdp2.plan,
    ("zero3", 2): fsdp2.plan,
    ("hsdp", 2): fsdp2.plan,
    ("ddp", 1): fsdp1.plan,
    ("zero2", 1): fsdp1.plan,
    ("zero3", 1): fsdp1.plan,
    ("hsdp", 1): fsdp1.plan,
}
"""By strategy and `fsdp_version`."""

STRATEGIES = frozenset(strategy for strategy, _ in IMPLEMENTATIONS)

INAPPLICABLE = {
    "zeropp": "ZeRO++ is DeepSpeed's; PyTorch quantises nothing on the wire (reshard_after_forward=N is its hpZ)",
    "mics": "MiCS is DeepSpeed's; PyTorch's hsdp shards within a group and replicates across groups",
}
"""Strategies that PyTorch does not have, with the reason."""


def plan(view: RankView) -> Plan:
    """Terms and collectives of one rank class. Raises UsageError for a strategy PyTorch does not have."""
    settings, warnings = _settings(view)
    answer = _implementation(view, settings)(view, settings)
    answer.warnings[:0] = warnings
    if settings["sync_module_states"] is False:
        answer.terms.append(loaded_model(view, types_of(view, settings)))
    if any(part.param_bytes < 1 for part in view.parts) and "params" in view.strategy.shards:
        answer.warnings.append(
            "a base below one byte per parameter is gathered here unpacked, in the compute type; packed in 16-bit storage "
            "(bnb_4bit_quant_storage) FSDP gathers a quarter of that"
        )
    return answer


def rank_states(view: RankView, rank: int) -> dict[str, int]:
    """Bytes of every term of one data-parallel rank, where ranks differ: by name, parts together."""
    settings, _ = _settings(view)
    answer = _implementation(view, settings)
    made = answer(view, settings) if answer is ddp.plan else answer(view, settings, rank)
    totals: dict[str, int] = {}
    for term in made.terms:
        totals[term.name] = totals.get(term.name, 0) + term.bytes
    return totals


def _settings(view: RankView) -> tuple[Settings, list[str]]:
    """Every setting's value; ZeRO-2 is fully sharded data parallel that keeps parameters until backward."""
    settings, warnings = resolve_settings("pytorch", SETTINGS, view.job.settings, view.strategy.name)
    if view.strategy.name == "zero2":
        settings["reshard_after_forward"] = False
    return settings, warnings


def _implementation(view: RankView, settings: dict[str, Any]) -> Callable[..., Plan]:
    name = view.strategy.name
    if name in INAPPLICABLE:
        raise UsageError(INAPPLICABLE[name], hint=f"strategies of pytorch: {', '.join(sorted(STRATEGIES))}")
    version = 2 if name == "zero1" else settings["fsdp_version"]
    found = IMPLEMENTATIONS.get((name, version))
    if found is None:
        versions = sorted(version for strategy, version in IMPLEMENTATIONS if strategy == name)
        raise UsageError(
            f"--set fsdp_version={settings['fsdp_version']}: {name} has no such version",
            hint=f"{name} of pytorch: fsdp_version {' or '.join(map(str, versions))}",
        )
    return found
