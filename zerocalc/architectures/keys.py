"""Read the keys of a config.json with their types, class defaults and other spellings; absent is not null."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from zerocalc.architectures.defaults import ALIASES, DEFAULTS
from zerocalc.errors import SpecError
from zerocalc.units import MAX_PARAMS

MAX_LAYERS = 2_000
"""Ten times the deepest published model. A framework that is replayed layer by layer takes a second for so many."""


class Keys:
    """One object of a config.json, read as one family reads it.

    Remembers which sizes came from class defaults: `assumptions` says so.
    """

    def __init__(self, config: Mapping[str, Any], family: str, *, origin: str, path: str = "") -> None:
        self.family = family
        self.origin = origin
        self._config = config
        self._path = path
        self._defaults = DEFAULTS[family]
        self._aliases = ALIASES.get(family, {})
        self._assumed: dict[str, int] = {}
        self._notes: list[str] = []

    def size(self, key: str, *, minimum: int = 1, maximum: int = MAX_PARAMS, aliases: bool = True) -> int:
        """Read a whole number between `minimum` and `maximum`; null is refused."""
        spelling, value = self._lookup(key, aliases=aliases)
        number = self._whole(spelling, value, minimum, maximum)
        if spelling not in self._config:
            self._assumed[self._path + key] = number
        return number

    def optional_size(self, key: str, *, minimum: int = 1) -> int | None:
        """Read a whole number, or None where the file or the class default says null."""
        return None if self._lookup(key)[1] is None else self.size(key, minimum=minimum)

    def size_or(self, key: str, fallback: int) -> int:
        """Read a whole number; null, in the file or as class default, means `fallback`."""
        value = self.optional_size(key)
        return fallback if value is None else value

    def layers(self, key: str = "num_hidden_layers", *, aliases: bool = True) -> int:
        """Read a number of layers."""
        return self.size(key, maximum=MAX_LAYERS, aliases=aliases)

    def flag(self, key: str) -> bool:
        """Read true or false; null is false, as Python reads it."""
        spelling, value = self._lookup(key)
        if value is None or isinstance(value, bool):
            return bool(value)
        raise self.error(spelling, "must be true or false", value)

    def text(self, key: str) -> str:
        """Read a text."""
        spelling, value = self._lookup(key)
        if isinstance(value, str):
            return value
        raise self.error(spelling, "must be text", value)

    def ratio(self, key: str) -> float:
        """Read a number from 0 to 1; null is 0."""
        spelling, value = self._lookup(key)
        if value is None:
            return 0.0
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1:
            return float(value)
        raise self.error(spelling, "must be a number from 0 to 1", value)

    def pair(self, key: str) -> tuple[int, int]:
        """Read a size, or two of them (height and width)."""
        spelling, value = self._lookup(key)
        if not isinstance(value, list):
            return (size := self.size(key)), size
        if len(value) != 2:
            raise self.error(spelling, "must be a whole number or two of them", value)
        return self._whole(spelling, value[0], 1, MAX_PARAMS), self._whole(spelling, value[1], 1, MAX_PARAMS)

    def items(self, key: str, kind: type) -> list[Any]:
        """Read a list of whole numbers or texts; null is an empty one."""
        spelling, value = self._lookup(key)
        if value is None:
            return []
        if isinstance(value, list) and all(type(item) is kind for item in value):
            return value
        raise self.error(spelling, f"must be a list of {'whole numbers' if kind is int else 'texts'}", value)

    def length(self, key: str) -> int | None:
        """Read how many entries an object has; None for null."""
        spelling, value = self._lookup(key)
        if value is None or isinstance(value, (dict, list)):
            return None if value is None else len(value)
        raise self.error(spelling, "must be an object", value)

    def nested(self, key: str, family: str, **override: object) -> Keys:
        """Read an object as another family reads its config, with some keys set; null and absent are all defaults."""
        spelling, value = self._lookup(key)
        if value is not None and not isinstance(value, Mapping):
            raise self.error(spelling, "must be an object", value)
        keys = Keys({**(value or {}), **override}, family, origin=self.origin, path=f"{self._path}{key}.")
        keys._assumed, keys._notes = self._assumed, self._notes
        return keys

    def rotary_fraction(self, key: str) -> float:
        """Read which part of a head is rotated: from the rope object, else from `key`."""
        for name in ("rope_scaling", "rope_parameters"):
            rope = self._config.get(name)
            if isinstance(rope, Mapping) and isinstance(
                value := rope.get("partial_rotary_factor"), (int, float)
            ):
                return float(value)
        return self.ratio(key)

    def share(self, key: str, among: str, *, even: bool) -> int:
        """Divide one size among as many as another says, rounding down with a note where the class does so.

        Raises SpecError for a remainder where `even` is asked, and for a share of nothing.
        """
        size, parts = self.size(key), self.size(among)
        if size % parts and (even or parts > size):
            raise SpecError(
                f"{self.origin}: {self._path}{key} {size:,} is not divisible by {among} {parts:,}",
                hint=f"choose a {among} that divides {key}",
            )
        if size % parts:
            note = f"{key} {size:,} over {among} {parts:,} rounded down to {size // parts:,}, as {self.family} does"
            self._notes.append(note)
        return size // parts

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What had to be rounded, and one sentence on the sizes that the file does not give."""
        if not self._assumed:
            return tuple(self._notes)
        sizes = ", ".join(f"{key} = {value:,}" for key, value in self._assumed.items())
        return (*self._notes, f"not in {self.origin}, so the class default of {self.family}: {sizes}")

    def error(self, key: str, rule: str, value: object) -> SpecError:
        """Build the error for a key: what was got, what is allowed, what to try."""
        default = self._defaults.get(key)
        hint = None
        if default is not None:
            hint = f"leave {key} out for the class default of {self.family}, {json.dumps(default)}"
        return SpecError(f"{self.origin}: {self._path}{key} {rule} (got {_shown(value)})", hint=hint)

    def _lookup(self, key: str, *, aliases: bool = True) -> tuple[str, Any]:
        """Find a value and the spelling it was found under."""
        for alias in self._aliases.get(key, ()) if aliases else ():
            if self._config.get(alias) is not None:
                return alias, self._config[alias]
        return key, self._config.get(key, self._defaults[key])

    def _whole(self, key: str, value: object, minimum: int, maximum: int) -> int:
        """Check one whole number."""
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, "must be a whole number", value)
        if value < minimum:
            raise self.error(key, f"must be at least {minimum}", value)
        if value > maximum:
            raise SpecError(f"{self.origin}: {self._path}{key} must be at most {maximum:,}")
        return value


def _shown(value: object, limit: int = 60) -> str:
    """Show a value as JSON writes it, cut so that an error stays one short line."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, int) and value.bit_length() > 200:
        return "a huge number"
    text = json.dumps(value) if value is None or isinstance(value, (str, bool, int, float)) else repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"
