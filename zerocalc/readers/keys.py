"""Tables of keys: what a tool's file may hold, how each value is read, what it maps to, and whether it moves bytes.

A reader is a table of `Key` rows and a few rules over what `scan` finds. A new key is a new row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from zerocalc.errors import SpecError, shown
from zerocalc.readers.convert import AUTO, CONVERTERS, Kind, is_placeholder
from zerocalc.readers.reading import Given, Reading
from zerocalc.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Effect = Literal["modelled", "unmodelled", "inert"]
NO_BYTES: tuple[Any, ...] = (None, False, 0, 1, "", "none")
MAX_UNKNOWN = 100
_GENERIC = frozenset(
    {"enabled", "enable", "type", "params", "name", "device", "degree", "value", "mode", "dtype", "version"}
)


@dataclass(eq=False, repr=False)
class Key(Record):
    """One key of a tool's file."""

    path: str
    """Dotted path; a `*` at the end stands for any rest of the name."""
    kind: Kind = "any"
    effect: Effect = "inert"
    to: str = ""
    """Where the value goes unchanged: a name of `Reading.values`, or `settings.<name>`, `totals.<name>`."""
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

    def knows(self, name: str, value: Any, *, telling: bool) -> bool:
        """Whether a file may have this key or section at its top level; with `telling`, and whether it says something."""
        row = self.find(name)
        if name in self.sections or row is None:
            return name in self.sections
        return not telling or (row.effect != "inert" and not isinstance(value, dict))

    def decides(self, section: str) -> bool:
        """Whether a section holds keys that are modelled."""
        return any(row.effect == "modelled" and row.path.startswith(f"{section}.") for row in self.rows)

    def near(self, path: str) -> str | None:
        """The name in the same section that was probably meant."""
        from difflib import get_close_matches

        section, _, name = path.rpartition(".")
        if name.startswith(("_", "/", "#")):
            return None
        start = f"{section}." if section else ""
        inside = {
            known[len(start) :].split(".")[0]
            for known in self._index
            if known.startswith(start) and not known.endswith("*")
        }
        words = sorted(name.split("_"))
        if swapped := next((known for known in inside if sorted(known.split("_")) == words), None):
            return start + swapped
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


class Found(dict[str, Given]):
    """What a file says, by canonical path; `auto` stays the string `auto`."""

    def __init__(self) -> None:
        super().__init__()
        self.placeholders: set[str] = set()
        """Paths that hold something which is no value yet: a template's name, a list of candidates."""

    def undecided(self, path: str) -> bool:
        """Whether a key is there and leaves its value to someone else."""
        return path in self.placeholders or (path in self and self[path].value == AUTO)


def scan(data: Mapping[Any, Any], table: Table, label: str, reading: Reading) -> Found:
    """Read every key of `data` by the table: known values converted, the rest named in `reading.warnings`.

    Raises SpecError for a value that a modelled key cannot have.
    """
    scanner = _Scanner(table, label, reading.warnings)
    scanner.walk(data, "")
    if scanner.unknown:
        named = scanner.unknown[:MAX_UNKNOWN]
        more = (
            [f"and {len(scanner.unknown) - MAX_UNKNOWN} more"] if len(scanner.unknown) > MAX_UNKNOWN else []
        )
        reading.warnings.append(f"{label}: unknown keys, not read: {', '.join(named + more)}")
    places = {"settings": reading.settings, "totals": reading.totals, "files": reading.files}
    for path, given in scanner.found.items():
        row = table.find(path)
        place, _, name = row.to.partition(".") if row is not None else ("", "", "")
        if name:
            places[place][name] = given
        elif place and given.value != AUTO:
            reading.values[place] = given
    return scanner.found


def check_kind(data: Mapping[Any, Any], label: str, kind: str, *tables: Table, telling: bool = False) -> None:
    """Refuse another tool's file: one that has keys, none of which these tables know. Raises SpecError.

    With `telling`, keys that say nothing, which formats share, do not count.
    """
    named = {str(name).strip(): value for name, value in data.items()}
    if named and not any(
        table.knows(name, value, telling=telling) for table in tables for name, value in named.items()
    ):
        raise SpecError(
            f"{label}: no {kind}: none of its keys is one ({', '.join(map(_bare, list(named)[:3]))}, …)",
            hint="the file of another tool? --deepspeed, --accelerate, --torchtitan, --job, or MODEL for a config.json",
        )


def _bare(name: str) -> str:
    return shown(name)[1:-1]


class _Scanner:
    """One pass over one file."""

    def __init__(self, table: Table, label: str, warnings: list[str]) -> None:
        self.table = table
        self.label = label
        self.warnings = warnings
        self.found = Found()
        self.unknown: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(f"{self.label}: {text}")

    def walk(self, data: Mapping[Any, Any], section: str) -> None:
        for raw_name, value in data.items():
            name = str(raw_name)
            path = f"{section}.{name}" if section else name
            row = self.table.find(path)
            if row is not None and not (isinstance(value, dict) and path in self.table.sections):
                self.take(row, path, value)
            elif path not in self.table.sections:
                self.stray(path, name, section)
            elif isinstance(value, dict):
                self.walk(value, path)
            elif value is not None:
                self.no_section(path, value)

    def no_section(self, path: str, value: Any) -> None:
        """Refuse a plain value where a section stands whose keys move bytes, as any value of the wrong type; name others."""
        said = f"{path}: must be a section of keys (got {shown(value)})"
        if self.table.decides(path) and value and not is_placeholder("bool", value) and not _is_auto(value):
            raise SpecError(f"{self.label}: {said}", hint=f"like {{{path.rpartition('.')[2]}: {{…: …}}}}")
        self.warn(f"{said}; not read")

    def stray(self, path: str, name: str, section: str) -> None:
        """Name a key that the table does not have: at home elsewhere, misspelt, or unknown."""
        if homes := self.table.homes(path):
            where = f"inside {section}" if section else "at the top level"
            self.warn(f"{shown(name)[1:-1]} {where} has no effect; it belongs at {' or '.join(homes[:3])}")
            return
        near = self.table.near(path) if len(self.unknown) < MAX_UNKNOWN else None
        text = shown(path)[1:-1]
        self.unknown.append(f"{text} (did you mean {near}?)" if near else text)

    def without_comma(self, row: Key, path: str, value: Any) -> Any:
        """The value, without the comma that Hjson keeps in a bare word such as `True,`."""
        if (
            row.kind in ("any", "names", "text")
            or not isinstance(value, str)
            or not value.rstrip().endswith(",")
        ):
            return value
        self.warn(
            f"{path} = {shown(value)}: Hjson keeps the comma in a bare word, which DeepSpeed may refuse"
        )
        return value.rstrip().removesuffix(",")

    def take(self, row: Key, path: str, value: Any) -> None:
        """Convert one value of a known key; placeholders and lists of candidates are not values."""
        if isinstance(value, list) and row.kind not in ("any", "names"):
            if len(value) != 1:
                self.found.placeholders.add(row.path)
                self.warn(f"{path} lists candidates {shown(value)}, not one value; not read")
                return
            value = value[0]
        if value is None:
            return
        if row.kind != "any" and is_placeholder(row.kind, value):
            self.found.placeholders.add(row.path)
            self.warn(f"{path} is a placeholder ({shown(value)}); treated as not given")
            return
        value = self.without_comma(row, path, value)
        try:
            converted = AUTO if _is_auto(value) and row.kind != "text" else CONVERTERS[row.kind](value)
        except SpecError as error:
            if row.effect == "modelled":
                raise SpecError(f"{self.label}: {path}: {error.message}", hint=error.hint) from None
            self.warn(f"{path}: {error.message}; not read")
            return
        if path == row.path or row.path not in self.found:
            key = path if row.path.endswith("*") else row.path
            self.found[key] = Given(converted, f"file:{self.label}:{path}")
        if row.effect == "unmodelled" and not _is_neutral(row, converted):
            note = f" ({row.note})" if row.note else ""
            self.warn(f"{path} = {shown(value)} moves bytes but is not modelled{note}")


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value.strip().lower() == AUTO


def _is_neutral(row: Key, value: Any) -> bool:
    if isinstance(value, dict):
        switch = value.get("enabled", value.get("enable", True))
        return not value or switch in (False, "false", "False")
    return any(value == same and isinstance(value, bool) == isinstance(same, bool) for same in row.neutral)
