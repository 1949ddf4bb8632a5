"""Rows of a sweep, column by column, and the filter that chooses among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

BLOCK = 1 << 12
"""Rows that are plain Python values at once."""
Filter = Callable[[Callable[[str], Any]], Any]
"""Whether a row is wanted, given its columns: plain numbers or arrays."""


class Batch(NamedTuple):
    """Rows in the grid's order, column by column; a column that is the same in every row is that one value."""

    length: int
    columns: Mapping[str, Any]
    evaluated: int
    """Configurations behind it, wanted or not."""
    refused: Mapping[str, int]
    """How many of them cannot be, by reason."""

    def blocks(self) -> Iterator[list[tuple[Any, ...]]]:
        """The rows as plain values, in the order of the columns, some at a time."""
        for low in range(0, self.length, BLOCK):
            high = min(low + BLOCK, self.length)
            listed = [_listed(column, low, high) for column in self.columns.values()]
            yield list(zip(*listed, strict=True))

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """The rows, one by one."""
        for block in self.blocks():
            yield from block


def _listed(column: Any, low: int, high: int) -> list[Any]:
    """Part of a column as plain values; one value stands for all rows."""
    if hasattr(column, "tolist"):
        values: list[Any] = column[low:high].tolist()
        unknown = column.dtype.kind in "fO"  # NaN where a rate has none
        return [None if value != value else value for value in values] if unknown else values  # noqa: PLR0124
    return column[low:high] if isinstance(column, list) else [column] * (high - low)
