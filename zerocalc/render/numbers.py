"""How numbers are written. The only place that turns bytes into GB or GiB, and the only place that rounds."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from math import ceil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from zerocalc.results.time import Bounds

UNITS = {"GB": 10**9, "GiB": 2**30}
MINUS = "−"
NOTHING = "–"
MAX_DECIMALS = 4
NEGLIGIBLE = 10**5
"""An amount this many times smaller than its column's largest is shown as less than the last digit."""


def decimals_for(amounts: Iterable[int | None], units: str) -> int:
    """Decimals that leave the smallest of a column's amounts two digits to read: 1 where all reach one unit.

    What is negligible beside the largest does not count.
    """
    sizes = [abs(amount) for amount in amounts if amount]
    counting = [size for size in sizes if size * NEGLIGIBLE >= max(sizes)]
    smallest = min(counting, default=UNITS[units])
    decimals = 1
    while decimals < MAX_DECIMALS and smallest * 10 ** (decimals - 1) < UNITS[units]:
        decimals += 1
    return decimals


def in_units(amount: int, units: str, decimals: int = 1) -> str:
    """Bytes in GB or GiB without the unit's name, such as `293.1`; what rounds to zero is `<0.0001`."""
    scaled = Decimal(abs(amount)) / UNITS[units]
    rounded = scaled.quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_HALF_UP)
    text = str(rounded)
    if amount and not rounded:
        text = f"<{Decimal(1).scaleb(-decimals)}"
    return f"{MINUS}{text}" if amount < 0 else text


def with_unit(amount: int, units: str) -> str:
    """Bytes for a sentence: `140.0 GB`."""
    return f"{in_units(amount, units, decimals_for([amount], units))} {units}"


def headroom(amount: int, units: str, decimals: int) -> str:
    """What is left or missing, with its sign; too little to show in the unit is given in bytes."""
    sign = MINUS if amount < 0 else "+"
    text = in_units(abs(amount), units, decimals)
    return f"{sign}{abs(amount)} B" if text.startswith("<") else f"{sign}{text}"


def column(amounts: Sequence[int | None], units: str) -> list[str]:
    """A column of sizes, all with the same decimals; a dash where there is none."""
    decimals = decimals_for(amounts, units)
    return [NOTHING if amount is None else in_units(amount, units, decimals) for amount in amounts]


def count(value: int) -> str:
    """A count with its digits grouped: `68,976,648,192`."""
    return f"{value:,}".replace("-", MINUS)


def short(value: float) -> str:
    """A ratio or a multiple without needless zeros: `2`, `2.5`, `1.667`."""
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def times_psi(volume: float) -> str:
    """A volume as the papers print it: `2Ψ`."""
    return f"{volume:.3g}Ψ"


def seconds(duration: float) -> str:
    """A duration in seconds, to three digits: `0.200`, `0.00493`, `12.3`."""
    return f"{duration:#.3g}" if duration < 1000 else f"{duration:,.0f}"


def between(bounds: Bounds, write: Callable[[float], str]) -> str:
    """Both bounds, `0.568–1.96`; one number where they are written alike."""
    lower, upper = write(bounds.lower), write(bounds.upper)
    return lower if lower == upper else f"{lower}–{upper}"


def seconds_between(bounds: Bounds) -> str:
    """Bounds in seconds."""
    return between(bounds, seconds)


def tokens(number: float) -> str:
    """Tokens that are needed, never rounded down."""
    return count(ceil(number))


def rate(bytes_per_s: float) -> str:
    """A bandwidth in GB/s, as links are sold and measured."""
    return f"{bytes_per_s / UNITS['GB']:.4g}"


def value(item: Any) -> str:
    """Any resolved value for a reader: digits grouped, yes and no, a dash for nothing."""
    if item is None:
        return NOTHING
    if isinstance(item, bool):
        return "yes" if item else "no"
    if isinstance(item, int):
        return count(item)
    if isinstance(item, (list, tuple)):
        return ", ".join(value(each) for each in item)
    return short(item) if isinstance(item, float) else str(item)
