"""Tables of keys: what a tool's file may hold, how each value is read, what it maps to, and whether it moves bytes.

A reader is a table of `Key` rows and a few rules over what `scan` finds. A new key is a new row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from zerocalc.errors import SpecError
from zerocalc.readers.convert import AUTO, CONVERTERS, Kind, is_placeholder, shown
from zerocalc.readers.reading import Given, Reading

Effect = Literal["modelled", "unmodelled", "inert"]
NO_BYTES: tuple[Any, ...] = (None, False, 0, 1, "", "none")
_GENERIC = frozenset(
    {"enabled", "enable", "type", "params", "name", "device", "degree", "value", "mode", "dtype"}
)


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a tool's file."""

    path: str
    """Dotted path; a `*` at the end stands for any rest of the name."""
    kind: Kind = "any"
    effect: Effect = "inert"
    to: str = ""
    """Where the value goes unchanged: a name of `Reading.values`, or `settings.<name>`."""
    aliases: tuple[str, ...] = ()
    default: Any = None
    neutral: tuple[Any, ...] = NO_BYTES
    """Values that leave the bytes as they are: an `unmodelled` key at such a value needs no warning."""
    note: str = ""
    """Versions whose default differs, or what the key does when it is not modelled."""


class Table:
    """The keys of one format, found by path, old name or pattern."""

    def __init__(self, *groups: Iterable[Key]) -> None:
        self.rows = tuple(row for group in groups for row in group)
        self._index = {path: row for row in self.rows for path in (*row.aliases, row.path)}
        self._patterns = [row for row in self.rows if row.path.endswith("*")]
        self.sections = {path[:end] for path in self._index for end, char in enumerate(path) if char == "."}

    def find(self, path: str) -> Key | None:
        """The row of a path, or None."""
        found = self._index.get(path)
        return found or next((row for row in self._patterns if path.startswith(row.path[:-1])), None)

    def near(self, path: str) -> str | None:
        """The name in the same section that was probably meant."""
        from difflib import get_close_matches

        section, _, name = path.rpartition(".")
        start = f"{section}." if section else ""
        inside = {known[len(start) :].split(".")[0] for known in self._index if known.startswith(start)}
        close = get_close_matches(name, sorted(inside), n=1, cutoff=0.75)
        return start + close[0] if close else None

    def homes(self, path: str) -> list[str]:
        """Other places where the last name of `path` is known."""
        name = path.rpartition(".")[2]
        if name in _GENERIC:
            return []
        canonical = {
            self._index[known].path if known in self._index else known for known in self._named(name)
        }
        return sorted(canonical - {path})

    def _named(self, name: str) -> list[str]:
        return [known for known in (*self._index, *self.sections) if known.rpartition(".")[2] == name]


Found = dict[str, Given]
"""What a file says, by canonical path; `auto` stays the string `auto`."""


def scan(data: Mapping[Any, Any], table: Table, label: str, reading: Reading) -> Found:
    """Read every key of `data` by the table: known values converted, the rest named in `reading.warnings`.

    Raises SpecError for a value that a modelled key cannot have.
    """
    found: Found = {}
    unknown: list[str] = []
    _walk(data, "", table, label, reading, found, unknown)
    if unknown:
        reading.warnings.append(f"{label}: unknown keys, not read: {', '.join(unknown)}")
    for path, given in found.items():
        row = table.find(path)
        if row is not None and row.to.startswith("settings."):
            reading.settings[row.to.removeprefix("settings.")] = given
        elif row is not None and row.to and given.value != AUTO:
            reading.values[row.to] = given
    return found


def _walk(
    data: Mapping[Any, Any],
    section: str,
    table: Table,
    label: str,
    reading: Reading,
    found: Found,
    unknown: list[str],
) -> None:
    for raw_name, value in data.items():
        name = str(raw_name)
        path = f"{section}.{name}" if section else name
        row = table.find(path)
        if row is not None and not (isinstance(value, dict) and path in table.sections):
            _take(row, path, value, label, reading, found)
        elif path in table.sections:
            if isinstance(value, dict):
                _walk(value, path, table, label, reading, found, unknown)
            elif value is not None:
                reading.warnings.append(
                    f"{label}: {path} must be a section of keys (got {shown(value)}); not read"
                )
        elif homes := table.homes(path):
            where = f"inside {section}" if section else "at the top level"
            reading.warnings.append(
                f"{label}: {name} {where} has no effect; it belongs at {' or '.join(homes[:3])}"
            )
        else:
            near = table.near(path)
            unknown.append(f"{path} (did you mean {near}?)" if near else path)


def _take(row: Key, path: str, value: Any, label: str, reading: Reading, found: Found) -> None:
    if isinstance(value, list) and row.kind not in ("any", "names"):
        if len(value) != 1:
            reading.warnings.append(
                f"{label}: {path} lists candidates {shown(value)}, not one value; not read"
            )
            return
        value = value[0]
    if value is None:
        return
    if row.kind != "any" and is_placeholder(row.kind, value):
        reading.warnings.append(f"{label}: {path} is a placeholder ({shown(value)}); treated as not given")
        return
    try:
        converted = AUTO if _is_auto(value) and row.kind != "text" else CONVERTERS[row.kind](value)
    except SpecError as error:
        if row.effect != "modelled":
            reading.warnings.append(f"{label}: {path}: {error.message}; not read")
            return
        raise SpecError(f"{label}: {path}: {error.message}", hint=error.hint) from None
    if path == row.path or row.path not in found:
        found[path if row.path.endswith("*") else row.path] = Given(converted, f"file:{label}:{path}")
    if row.effect == "unmodelled" and not _is_neutral(row, converted):
        note = f" ({row.note})" if row.note else ""
        reading.warnings.append(f"{label}: {path} = {shown(value)} moves bytes but is not modelled{note}")


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value.strip().lower() == AUTO


def _is_neutral(row: Key, value: Any) -> bool:
    if isinstance(value, dict):
        switch = value.get("enabled", value.get("enable", True))
        return not value or switch in (False, "false", "False")
    return any(
        value == neutral and isinstance(value, bool) >= isinstance(neutral, bool) for neutral in row.neutral
    )
