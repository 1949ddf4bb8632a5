"""Answers in short, so that two of them can be compared: the numbers by their JSON path, the terms, the inputs."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from zerocalc.errors import unknown_name
from zerocalc.results import plain
from zerocalc.results.check import Snapshot, TermBytes, Unit, Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from zerocalc.results import Resolved, StrategyResult

TIERS = ("gpu", "cpu", "nvme")
_MISSING = object()


def metrics_of(result: Mapping[str, Any]) -> dict[str, Value]:
    """Every number, word and verdict of one result by its path; lists have none."""
    return dict(_leaves(result, ""))


def _leaves(node: Mapping[str, Any], before: str) -> Iterator[tuple[str, Value]]:
    for key, value in node.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{before}{key}.")
        elif not isinstance(value, list):
            yield f"{before}{key}", value


def metric(result: StrategyResult, path: str) -> Value:
    """One number of a result. Raises UnknownNameError with the near paths."""
    node: Any = result
    for name in path.split("."):
        node = _child(node, name)
    if node is _MISSING or is_dataclass(node) or isinstance(node, (dict, list)):
        known = list(metrics_of(plain(result)))
        raise unknown_name("metric", path, known, hint="a path in one result of `zerocalc estimate -f json`")
    value: Value = node
    return value


def _child(node: Any, name: str) -> Any:
    if isinstance(node, dict):
        return node.get(name, _MISSING)
    if is_dataclass(node) and name in {field.name for field in fields(node)}:
        return getattr(node, name)
    return _MISSING


def unit_of(path: str, value: Value) -> Unit:
    """Whether a metric is bytes, another number, or a word."""
    if isinstance(value, (bool, str)):
        return "word"
    return "byte" if "bytes" in path.rpartition(".")[2] or ".phases." in path else "number"


def snapshot(name: str, request: Mapping[str, Resolved], result: StrategyResult) -> Snapshot:
    """An answer of our own in short."""
    data = plain(result)
    words = {word: plain(resolved.value) for word, resolved in request.items()}
    return snapshot_of(name, words, data)


def snapshot_of(name: str, request: Mapping[str, Any], result: Mapping[str, Any]) -> Snapshot:
    """A result that is already plain JSON in short."""
    memory = result.get("memory") or {}
    terms = [term_bytes(tier, term) for tier in TIERS for term in (memory.get(tier) or {}).get("terms", ())]
    own = {"strategy": result.get("strategy"), "framework": result.get("framework")}
    return Snapshot(name=name, request={**request, **own}, metrics=metrics_of(result), terms=terms)


def term_bytes(tier: str, term: Mapping[str, Any]) -> TermBytes:
    """A term in short. Raises KeyError or TypeError where it is none."""
    amount = term["bytes"]
    if isinstance(amount, bool) or not isinstance(amount, int):
        raise TypeError
    return TermBytes(tier=tier, name=text(term["name"]), part=text(term["part"]), bytes=amount)


def text(value: Any) -> str:
    """The value, which must be text. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError
    return value
