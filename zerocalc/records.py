"""What a frozen dataclass gives, without the five functions that each one compiles at import.

Start-up is what users feel, and there are dozens of these classes: `@dataclass(eq=False, repr=False)` on a `Record`
compiles only `__init__`, a third of the time.

Which kind of class, everywhere in the package: a record for what is made once and read (results, rows of data, what
one module hands another); a NamedTuple for a row that is unpacked, or copied with `_replace`; a frozen dataclass with
slots where thousands are made for one answer (frameworks, sweeps), for they are smaller and made a little faster; an
ordinary dataclass for what is filled step by step, such as `Plan` and `Reading`.
"""

from __future__ import annotations

from typing import Any


class Record:
    """Attributes that are written once, equality and hash by them, and a repr that shows them."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__:
            raise AttributeError(f"{type(self).__name__}.{name} is read-only")
        self.__dict__[name] = value

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} is read-only")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__.values()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__name__}({shown})"
