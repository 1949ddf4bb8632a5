"""What a row of a preset file may hold, and what it becomes. `presets` finds the rows; this module reads them.

Every published number is a `Figure`: value and unit as printed, source and confidence beside it. Conversion to
bytes, FLOP/s and bytes/s is exact. A key that no reader knows is refused, with the file and the row named.
Rows become named tuples: they are immutable, and their classes cost a tenth of dataclasses at start-up.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from zerocalc.errors import SpecError, shown
from zerocalc.units import BYTE_UNITS, DTYPE_BITS, MAX_BYTES, MAX_PARAMS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Number = int | Decimal

NAME_KEYS = ("aliases", "default_for", "ambiguous", "hf_id")
LARGEST = 10**24
CONFIDENCES = ("high", "medium", "low", "assumed")
BYTES = {
    **{unit[:-1].upper().replace("I", "i") + "B": Fraction(scale) for unit, scale in BYTE_UNITS.items()},
    "GB per GPU": Fraction(10**9),
}
FLOPS = {"GFLOP/s": Fraction(10**9), "TFLOP/s": Fraction(10**12), "PFLOP/s": Fraction(10**15)}
BANDWIDTH = {"GB/s": Fraction(10**9), "TB/s": Fraction(10**12), "Gb/s": Fraction(10**9, 8)}
TIME = {"s": Fraction(1), "us": Fraction(1, 10**6)}
BASE_UNITS = {**BYTES, **FLOPS, **BANDWIDTH, **TIME}


def normal(name: str) -> str:
    """Return the form in which names are compared: lower case, `-` for blanks and underscores."""
    return "-".join(name.lower().replace("_", " ").split())


class Figure(NamedTuple):
    """One published figure: value and unit as printed, where it was printed, and how sure the reading is."""

    value: Number | bool | str | tuple[Number, ...]
    unit: str
    source: str
    confidence: str
    note: str = ""

    @property
    def exact(self) -> Fraction:
        """The value in base units (bytes, FLOP/s, bytes/s, seconds, or a plain count); a range's lower end."""
        value = min(self.value) if isinstance(self.value, tuple) else self.value
        assert not isinstance(value, str), "a figure in words has no amount"
        return Fraction(value) * BASE_UNITS.get(self.unit, Fraction(1))

    @property
    def whole(self) -> int:
        """The value in base units, rounded down: what a capacity surely holds."""
        return int(self.exact)

    @property
    def text(self) -> str:
        """The figure as printed, such as `81090 MiB`."""
        value = "-".join(map(str, self.value)) if isinstance(self.value, tuple) else str(self.value)
        return f"{value} {self.unit}".strip()


class Alternative(NamedTuple):
    """A figure seen elsewhere that lost, and why."""

    field: str
    figure: Figure
    why: str


class Preset(NamedTuple):
    """A row as found: its table, its file, and the name it answered to."""

    kind: str
    id: str
    table: dict[str, Any]
    path: Path
    asked: str = ""

    def listed(self, key: str) -> list[str]:
        """Names under one key, in normal form; what is no name is left for the reader to refuse."""
        names = self.table.get(key)
        return [
            normal(name) for name in (names if isinstance(names, list) else [names]) if isinstance(name, str)
        ]

    @property
    def names(self) -> list[str]:
        """Every name the row answers to, in normal form, its id first."""
        return [normal(self.id), *(name for key in NAME_KEYS for name in self.listed(key))]

    @property
    def origin(self) -> str:
        """How a job records where a value came from: `preset:h100-sxm-80`."""
        return f"preset:{self.id}"

    @property
    def title(self) -> str:
        """The name in words, or the id where the row has none."""
        title = self.table.get("name", self.table.get("what", self.id))
        return title if isinstance(title, str) else self.id

    @property
    def assumption(self) -> str | None:
        """A sentence for `assumptions` when the name asked for could mean other parts too, else None."""
        if self.asked == normal(self.id) or self.asked not in self.listed("default_for"):
            return None
        return f"{self.asked} read as {self.id}" + (f" ({self.title})" if self.title != self.id else "")


class Row:
    """Takes typed values out of a row; what is wrong or left over becomes one clear error."""

    def __init__(self, where: str, table: dict[str, Any], *, default_source: str) -> None:
        self.where = where
        self.table = table
        self.default_source = default_source
        self.taken: set[str] = set()

    def error(self, key: str, problem: str, *, hint: str | None = None) -> SpecError:
        """Build the error for `key`, naming the file and the row."""
        return SpecError(f"{self.where} {key}: {problem}", hint=hint)

    def take(self, key: str, what: str, *kinds: type) -> Any:
        """Take an optional value of the given Python types; `what` says in words what is allowed."""
        self.taken.add(key)
        value = self.table.get(key)
        if value is not None and (
            not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)
        ):
            raise self.error(key, f"must be {what} (got {shown(value)})")
        return value

    def text(self, key: str, default: str | None = None, *, allowed: tuple[str, ...] = ()) -> str:
        """Take a string, required unless there is a default, one of `allowed` when that is given."""
        value = self.take(key, "a string", str)
        value = default if value is None else value
        if value is None:
            raise self.error(key, "is missing")
        if allowed and value not in allowed:
            raise self.error(key, f"must be one of {', '.join(allowed)} (got {shown(value)})")
        return str(value)

    def dtype(self, key: str, default: str | None = None, *, also: tuple[str, ...] = ()) -> str:
        """Take an element type, or one of the words in `also`."""
        return self.text(key, default, allowed=(*also, *DTYPE_BITS))

    def texts(self, key: str) -> tuple[str, ...]:
        """Take a list of strings, empty when absent."""
        values = self.take(key, "a list of strings", list) or []
        if not all(isinstance(value, str) for value in values):
            raise self.error(key, "must be a list of strings")
        return tuple(values)

    def integer(self, key: str, default: int | None = None, *, minimum: int = 0) -> int:
        """Take a whole number, required unless there is a default."""
        value = self.take(key, "a whole number", int)
        value = default if value is None else value
        if value is None:
            raise self.error(key, "is missing")
        if not minimum <= value <= MAX_PARAMS:
            raise self.error(key, f"must be between {minimum} and {MAX_PARAMS:,} (got {shown(value)})")
        return int(value)

    def number(self, key: str) -> Number | None:
        """Take an optional non-negative number."""
        value = self.take(key, "a number", int, Decimal)
        if value is not None:
            self.check(key, value)
        return cast("Number | None", value)

    def check(self, key: str, number: object) -> None:
        """Refuse what is no number, negative, not finite, or beyond every bound of the contract."""
        if isinstance(number, bool) or not isinstance(number, int | Decimal):
            raise self.error(key, f"must be a number (got {shown(number)})")
        decimal = Decimal(number)
        if not decimal.is_finite() or not 0 <= decimal <= MAX_BYTES or int(decimal.as_tuple().exponent) < -40:
            raise self.error(key, f"must be between 0 and 2^63 (got {shown(number)})")

    def rows(self, key: str) -> list[Row]:
        """Take a list of tables, each to be read like a row."""
        values = self.take(key, "a list of tables", list) or []
        if not all(isinstance(value, dict) for value in values):
            raise self.error(key, "must be a list of tables")
        return [
            Row(f"{self.where} {key}[{index}]", value, default_source=self.default_source)
            for index, value in enumerate(values)
        ]

    def figure(self, key: str, units: Mapping[str, Fraction] | None = None) -> Figure | None:
        """Take a figure, `{ value = 80, unit = "GB", source = "..." }`, in one of `units`, or None when absent."""
        table = self.take(key, 'a figure like { value = 80, unit = "GB", source = "..." }', dict)
        if table is None:
            return None
        return read_figure(Row(f"{self.where} {key}", table, default_source=self.default_source), units)

    def figures(self, units: Mapping[str, Mapping[str, Fraction] | None]) -> dict[str, Figure]:
        """Take every figure the row has among the keys of `units`, each in its own units (None: any)."""
        found = {key: self.figure(key, allowed) for key, allowed in units.items()}
        return {key: figure for key, figure in found.items() if figure is not None}

    def done(self) -> None:
        """Refuse keys that nothing has taken."""
        unknown = sorted(set(self.table) - self.taken)
        if unknown:
            raise self.error(
                unknown[0], "is not a known key", hint=f"known keys: {', '.join(sorted(self.taken))}"
            )


def row_of(preset: Preset) -> Row:
    """Start reading a preset, with its names already taken."""
    where = f"{preset.path}: [{preset.id}]"
    row = Row(where, preset.table, default_source=f"the user's preset file {preset.path.name}")
    for key in NAME_KEYS:
        row.text(key, "") if key == "hf_id" else row.texts(key)
    return row


def read_figure(
    row: Row, units: Mapping[str, Fraction] | None = None, *, also: tuple[str, ...] = ()
) -> Figure:
    """Read a figure from its table: a number in one of `units`, or anything when that is None.

    `also` names keys that the caller reads itself.
    """
    value = row.take("value", "a number, a text or a list of numbers", int, Decimal, str, list, bool)
    if value is None or value == []:
        raise row.error("value", "is missing")
    for number in value if isinstance(value, list) else [value]:
        if units is not None or isinstance(value, list) or not isinstance(number, str | bool):
            row.check("value", number)
    figure = Figure(
        tuple(value) if isinstance(value, list) else value,
        row.text("unit", ""),
        row.text("source", row.default_source),
        row.text("confidence", "medium", allowed=CONFIDENCES),
        row.text("note", ""),
    )
    row.taken.update(also)
    row.done()
    if units is not None:
        _check_amount(row, figure, units)
    return figure


def _check_amount(row: Row, figure: Figure, units: Mapping[str, Fraction]) -> None:
    """Refuse a figure in other units, and amounts that no arithmetic here could use."""
    if figure.unit not in units:
        raise row.error("unit", f"must be one of {', '.join(units)} (got {shown(figure.unit)})")
    if figure.exact > LARGEST:
        raise row.error("value", f"must be at most 10^24 in base units (got {shown(figure.value)})")
    if figure.exact == 0 and units in (FLOPS, BANDWIDTH):
        raise row.error("value", "must be above 0")


def read_alternatives(row: Row) -> tuple[Alternative, ...]:
    """Read the figures that lost, each with the reason."""
    return tuple(
        Alternative(each.text("field"), read_figure(each, also=("field", "why")), each.text("why", ""))
        for each in row.rows("alternatives")
    )


def rate(figures: dict[str, Figure], *keys: str) -> float | None:
    """Return the first of the named rates that exists, in base units per second."""
    return next((float(figures[key].exact) for key in keys if key in figures), None)
