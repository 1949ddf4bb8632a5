"""Numbers that remember how they were made, so that one run of ordinary code answers for many inputs.

Run a function on recorded numbers (`whole`, `real`) and it computes as usual, while a `Tape` keeps every product and
division. Where the code decides by a number (`if`, `max`, `int()`), the tape notes the decision as a guard. `replay`
does the recorded arithmetic on arrays; it is the function's own answer wherever the guards decide as they did here.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

INFINITE = math.inf


class Atom(NamedTuple):
    """One step of the arithmetic: an operation on earlier numbers."""

    op: str
    operands: tuple[Any, ...]
    axes: frozenset[str]
    """The axes it depends on."""
    low: Any
    high: Any
    """It lies between these wherever the axes do."""


class Guard(NamedTuple):
    """A decision the code took: whether `number` is other than zero."""

    number: Recorded
    outcome: bool


class Tape:
    """Everything one traced run did."""

    def __init__(self) -> None:
        self.atoms: list[Atom] = []
        self.guards: dict[Any, Guard] = {}
        self._known: dict[Any, int] = {}

    def axis(self, name: str, *, low: int, high: int) -> int:
        """The atom of an axis, which lies between `low` and `high`."""
        self.atoms.append(Atom("axis", (name,), frozenset((name,)), low, high))
        return len(self.atoms) - 1

    def atom(self, op: str, operands: tuple[Any, ...], bounds: tuple[Any, Any]) -> int:
        """The atom of an operation; the same one is kept once."""
        key = (op, *(key_of(operand) for operand in operands))
        if key not in self._known:
            axes = frozenset().union(*(self.axes_of(operand) for operand in operands))
            self.atoms.append(Atom(op, operands, axes, *bounds))
            self._known[key] = len(self.atoms) - 1
        return self._known[key]

    def axes_of(self, number: Any) -> frozenset[str]:
        """The axes that a number depends on."""
        atoms = number.atoms_used() if isinstance(number, Recorded) else ()
        return frozenset().union(*(self.atoms[index].axes for index in atoms))

    def decide(self, number: Recorded, outcome: bool) -> bool:
        """Note a decision; the same one is noted once."""
        self.guards.setdefault(key_of(number), Guard(number, outcome))
        return outcome


def key_of(number: Any) -> Any:
    """What makes two recorded numbers the same."""
    return number.recorded if isinstance(number, Recorded) else (type(number), number)


def bounds_of(number: Any) -> tuple[Any, Any]:
    """The interval in which a number lies."""
    return number.bounds() if isinstance(number, Recorded) else (number, number)


def value_of(number: Any) -> Any:
    """The number in this run."""
    return number.value if isinstance(number, Recorded) else number


def corners(function: Callable[[Any, Any], Any], a: Any, b: Any) -> tuple[Any, Any]:
    """The interval of a monotone operation on two intervals; unbounded where that cannot be told."""
    (a_low, a_high), (b_low, b_high) = bounds_of(a), bounds_of(b)
    if INFINITE in {a_high, b_high, -a_low, -b_low}:
        return -INFINITE, INFINITE
    found = [function(x, y) for x in (a_low, a_high) for y in (b_low, b_high)]
    return min(found), max(found)


class Recorded:
    """What whole and real numbers do alike: decisions."""

    __slots__ = ("tape", "value")

    def __init__(self, tape: Tape, value: Any) -> None:
        self.tape = tape
        self.value = value
        """The number in this run."""

    @property
    def recorded(self) -> Any:
        """How the number came about, to tell recorded numbers apart without settling them."""
        raise NotImplementedError

    def atoms_used(self) -> Iterable[int]:
        """The atoms it is made of."""
        raise NotImplementedError

    def bounds(self) -> tuple[Any, Any]:
        """The interval in which it lies wherever the axes do."""
        raise NotImplementedError

    def as_real(self) -> Any:
        """The number in floating point."""
        raise NotImplementedError

    def __sub__(self, other: Any) -> Any:
        raise NotImplementedError

    def __neg__(self) -> Any:
        raise NotImplementedError

    def __add__(self, other: Any) -> Any:
        raise NotImplementedError

    def __bool__(self) -> bool:
        low, high = self.bounds()
        return low > 0 or high < 0 or self.tape.decide(self, bool(self.value))

    def _settle(self) -> Any:
        """The plain value, where the code cannot go on without one: the record then holds for this value only."""
        bool(self == self.value)
        return self.value

    def __int__(self) -> int:
        return int(self._settle())

    def __float__(self) -> float:
        return float(self._settle())

    def __hash__(self) -> int:
        return hash(self._settle())

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)

    def __str__(self) -> str:
        return str(self.value)

    def __eq__(self, other: object) -> Any:
        return self._compare("zero", other)

    def __ne__(self, other: object) -> Any:
        equal = self._compare("zero", other)
        return equal if equal is NotImplemented else -equal + 1 if isinstance(equal, Recorded) else not equal

    def __lt__(self, other: Any) -> Any:
        return self._compare("negative", other)

    def __le__(self, other: Any) -> Any:
        return self._compare("not_positive", other)

    def __gt__(self, other: Any) -> Any:
        return self._compare("positive", other)

    def __ge__(self, other: Any) -> Any:
        return self._compare("not_negative", other)

    def _compare(self, op: str, other: Any) -> Any:
        """Whether the difference is zero, negative and so on: a plain answer where its bounds tell, else 0 or 1."""
        if not isinstance(other, (Recorded, int, float, Fraction)):
            return NotImplemented
        difference = self - other
        if not isinstance(difference, Recorded):
            return COMPARISONS[op](difference)
        low, high = difference.bounds()
        answers = {COMPARISONS[op](low), COMPARISONS[op](high)}
        if len(answers) == 1 and not (op == "zero" and low <= 0 <= high):
            return answers.pop()
        from zerocalc.sweeps.whole import made

        return made(self.tape, op, (difference,), int(COMPARISONS[op](difference.value)), (0, 1))


COMPARISONS: dict[str, Callable[[Any], Any]] = {
    "zero": lambda difference: difference == 0,
    "negative": lambda difference: difference < 0,
    "not_positive": lambda difference: difference <= 0,
    "positive": lambda difference: difference > 0,
    "not_negative": lambda difference: difference >= 0,
}
