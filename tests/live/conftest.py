"""Ranks for the live tests: one world at a time, shared by all its cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.live.processes import Ranks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.live.cases import Case


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Cases of one world one after the other: starting a process takes longer than running a case."""
    items.sort(key=_world)


def _world(item: pytest.Item) -> int:
    spec = getattr(item, "callspec", None)
    case = spec.params.get("case") if spec and item.path.parent.name == "live" else None
    return case.world if case else 0


@pytest.fixture(scope="session")
def run_case() -> Iterator[Callable[[str, Case], list[dict[str, Any]]]]:
    """Run a case of a module on its world's ranks, and end them when another world's turn comes."""
    running: list[Ranks] = []

    def run(module: str, case: Case) -> list[dict[str, Any]]:
        if not running or running[0].world != case.world:
            while running:
                running.pop().stop()
            running.append(Ranks(case.world))
        return running[0].run(module, case)

    yield run
    while running:
        running.pop().stop()
