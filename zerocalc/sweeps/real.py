"""Recorded floating-point numbers. Their operations are kept in their order, since they round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocalc.sweeps.tape import INFINITE, Recorded, Tape, bounds_of, corners, value_of

if TYPE_CHECKING:
    from collections.abc import Callable


class Real(Recorded):
    """A floating-point number: one atom."""

    __slots__ = ("atom",)

    def __init__(self, tape: Tape, atom: int, value: float) -> None:
        super().__init__(tape, value)
        self.atom = atom

    @property
    def recorded(self) -> Any:
        """Its one atom."""
        return ("real", self.atom)

    def atoms_used(self) -> tuple[int]:
        """Its one atom."""
        return (self.atom,)

    def as_real(self) -> Real:
        """Itself."""
        return self

    def bounds(self) -> tuple[Any, Any]:
        """The interval in which it lies."""
        return self.tape.atoms[self.atom].low, self.tape.atoms[self.atom].high

    def __add__(self, other: Any) -> Any:
        return self if isinstance(other, (int, float)) and other == 0 else operated("plus", self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return operated("minus", self, other)

    def __rsub__(self, other: Any) -> Any:
        return operated("minus", other, self)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, (int, float)) and other in (0, 1):
            return self if other else 0.0
        return operated("product", self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return self if isinstance(other, (int, float)) and other == 1 else operated("divided_by", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return operated("divided_by", other, self)

    def __neg__(self) -> Any:
        return operated("minus", 0.0, self)


REAL_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "plus": lambda a, b: a + b,
    "minus": lambda a, b: a - b,
    "product": lambda a, b: a * b,
    "divided_by": lambda a, b: a / b,
}


def operated(op: str, a: Any, b: Any) -> Any:
    """A floating-point operation on recorded or plain numbers, at least one of them recorded."""
    a, b = (number.as_real() if isinstance(number, Recorded) else float(number) for number in (a, b))
    low, high = bounds_of(b)
    function = REAL_OPERATIONS[op]
    safe = op != "divided_by" or low > 0 or high < 0
    bounds = corners(function, a, b) if safe else (-INFINITE, INFINITE)
    tape = (a if isinstance(a, Real) else b).tape
    return Real(tape, tape.atom(op, (a, b), bounds), function(value_of(a), value_of(b)))
