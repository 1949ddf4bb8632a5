"""A framework's own knobs as rows of data: name, type, default, where they have an effect, and since when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zerocalc.errors import SpecError, shown, unknown_name
from zerocalc.records import Record

_TRUE, _FALSE = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}
_KINDS = {
    "int": "a whole number", "bool": "true or false", "int or bool": "a whole number, true or false", "str": "a name",
    "ratio": "a number between 0 and 1",
}  # fmt: skip
_MAX_INT = 10**15
WHERE_LISTED = "zerocalc presets list settings"
"""The command that shows every setting."""


@dataclass(kw_only=True, eq=False, repr=False)
class Setting(Record):
    """One knob. `kind` is one of int, bool, str, ratio, or `int or bool`."""

    name: str
    kind: str
    default: Any
    doc: str
    strategies: frozenset[str] = frozenset()
    """Strategies in which it has an effect; empty means all."""
    choices: tuple[str, ...] = ()
    minimum: int = 0
    changed: str = ""
    """Versions in which the default differs, as text."""


class Idle(str):
    """The warning that a setting has no effect under one strategy; a row of another that it acts in makes it moot."""

    __slots__ = ("strategies",)
    strategies: frozenset[str]


def _idle(row: Setting, strategy: str) -> Idle:
    text = Idle(f"{row.name} has no effect under {strategy}: it acts in {', '.join(sorted(row.strategies))}")
    text.strategies = row.strategies
    return text


def parse_setting(row: Setting, value: Any) -> Any:
    """Convert a value to the setting's type. Raises SpecError naming what is allowed."""
    text = str(value).strip().lower()
    truth = isinstance(value, bool) or text in _TRUE | _FALSE
    if "bool" in row.kind and truth and not ("int" in row.kind and text in {"0", "1"}):
        return text in _TRUE
    if "int" in row.kind:
        return _whole(row, value)
    if row.kind == "ratio":
        return _ratio(row, value)
    if row.kind == "str" and (not row.choices or text in row.choices):
        return text
    allowed = f"one of {', '.join(row.choices)}" if row.choices else _KINDS[row.kind]
    raise SpecError(f"--set {row.name}: must be {allowed} (got {shown(value)})", hint=row.doc)


def _whole(row: Setting, value: Any) -> int:
    from zerocalc.units import parse_count

    text = repr(value) if isinstance(value, float) else str(value)
    return parse_count(text, name=f"--set {row.name}", minimum=row.minimum, maximum=_MAX_INT)


def _ratio(row: Setting, value: Any) -> float:
    from zerocalc.units import parse_ratio

    number = float(parse_ratio(str(value), name=f"--set {row.name}"))
    if not 0 <= number <= 1:
        raise SpecError(f"--set {row.name}: must be between 0 and 1 (got {value})", hint=row.doc)
    return number


def resolve_settings(
    framework: str, rows: Sequence[Setting], given: Mapping[str, Any], strategy: str
) -> tuple[dict[str, Any], list[str]]:
    """Every setting's value, and one warning for each given one that has no effect in `strategy`.

    Raises UnknownNameError for a name the framework does not have, SpecError for a value of the wrong type.
    """
    by_name = {row.name: row for row in rows}
    values = {row.name: row.default for row in rows}
    warnings: list[str] = []
    for name, value in given.items():
        if name not in by_name:
            raise unknown_name(
                f"setting of framework {framework}", name, list(by_name),
                hint=WHERE_LISTED,
            )  # fmt: skip
        row = by_name[name]
        values[name] = parse_setting(row, value)
        if row.strategies and strategy not in row.strategies:
            warnings.append(_idle(row, strategy))
    return values, warnings
