"""PyYAML held to bounds: duplicate keys refused, aliases counted before they are expanded. Needs PyYAML."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

from zerocalc.errors import FileError
from zerocalc.readers.bounds import MAX_DEPTH, DuplicateKeyError

MAX_NODES = 100_000
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _StrictLoader(_Loader):  # type: ignore[misc]
    """The safe loader, refusing a key that a mapping names twice, or noting it (merged keys may be overridden)."""

    label = ""
    twice: list[str] | None = None

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[Hashable] = set()
        for key_node, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                if self.twice is None:
                    raise DuplicateKeyError(self.label, key)
                self.twice.append(str(key))
            if isinstance(key, Hashable):
                seen.add(key)
        return super().construct_mapping(node, deep=deep)


def load(text: str, label: str, *, twice: list[str] | None = None) -> Any:
    """The one document in `text`; keys given twice go to `twice`. Raises FileError or PyYAML's own errors."""
    _check_events(text, label)
    loader = _StrictLoader(text)
    loader.label, loader.twice = label, twice
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _check_expansion(node, label)
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _check_events(text: str, label: str) -> None:
    """Bound the nesting and the number of nodes of the text itself, without recursion."""
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=_Loader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH or count > MAX_NODES:
            raise _too_big(label)


def _check_expansion(root: Any, label: str) -> None:
    """Bound what aliases and merges expand to: nodes counted once per mention, and how deep they nest."""
    measured: dict[int, tuple[int, int]] = {}
    pending: set[int] = set()

    def measure(node: Any) -> tuple[int, int]:
        key = id(node)
        if key in pending:
            raise FileError(f"{label}: an alias contains itself", hint="write the value out")
        if key not in measured:
            pending.add(key)
            sizes = [measure(child) for child in _children(node)]
            pending.discard(key)
            measured[key] = (
                1 + sum(size for size, _ in sizes),
                1 + max((depth for _, depth in sizes), default=0),
            )
            if measured[key][0] > MAX_NODES or measured[key][1] > MAX_DEPTH:
                raise _too_big(label)
        return measured[key]

    measure(root)


def _children(node: Any) -> list[Any]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _too_big(label: str) -> FileError:
    return FileError(
        f"{label}: expands to more than {MAX_NODES:,} values or {MAX_DEPTH} levels",
        hint="a configuration has no need for that; check its anchors and aliases",
    )
