"""Recorded whole numbers, and fractions on their way to be rounded up.

A number is a sum of atoms with exact coefficients, kept in lowest form: 12·t + 4·t is 16·t, and t - t is the plain
number 0. An atom is an axis, or what no sum can say: a product, a quotient, a comparison.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from zerocalc.sweeps.real import Real, operated
from zerocalc.sweeps.tape import INFINITE, Recorded, Tape, bounds_of, corners, value_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Exact = int | Fraction


def axis(tape: Tape, name: str, value: int, *, low: int, high: int) -> Whole:
    """A number that varies between `low` and `high`, with the value it has in this run."""
    return Whole(tape, 0, {tape.axis(name, low=low, high=high): 1}, value)


def made(tape: Tape, op: str, operands: tuple[Any, ...], value: Any, bounds: tuple[Any, Any]) -> Whole:
    """A whole number made by an operation."""
    return Whole(tape, 0, {tape.atom(op, operands, bounds): 1}, value)


def lowest(value: Exact) -> Exact:
    """A fraction as a whole number where it is one."""
    # isinstance() asks Fraction's abstract bases and costs more than the arithmetic.
    return value.numerator if type(value) is Fraction and value.denominator == 1 else value


class Whole(Recorded):
    """An exact number: a constant and a sum of atoms. Its coefficients may be fractions until it is rounded up."""

    __slots__ = ("const", "terms")

    def __init__(self, tape: Tape, const: Exact, terms: Mapping[int, Exact], value: Exact) -> None:
        super().__init__(tape, value)
        self.const = const
        self.terms = terms

    @property
    def recorded(self) -> Any:
        """Its constant and its coefficients."""
        return (self.const, *sorted(self.terms.items()))

    def atoms_used(self) -> Iterable[int]:
        """The atoms of the sum."""
        return self.terms

    def bounds(self) -> tuple[Any, Any]:
        """The interval in which the sum lies."""
        low = high = self.const
        for index, factor in self.terms.items():
            atom = self.tape.atoms[index]
            low += factor * (atom.low if factor > 0 else atom.high)
            high += factor * (atom.high if factor > 0 else atom.low)
        return low, high

    @property
    def scale(self) -> int:
        """The least number that makes all coefficients whole."""
        return math.lcm(self.const.denominator, *(part.denominator for part in self.terms.values()))

    def as_real(self) -> Real:
        """The number in floating point."""
        return Real(self.tape, self.tape.atom("real", (self,), self.bounds()), float(self.value))

    def _scaled(self, factor: Exact) -> Any:
        if factor == 1:
            return self
        terms = {index: lowest(part * factor) for index, part in self.terms.items()} if factor else {}
        return self._sum(lowest(self.const * factor), terms, lowest(self.value * factor))

    def _sum(self, const: Exact, terms: dict[int, Exact], value: Exact) -> Any:
        return Whole(self.tape, const, terms, value) if terms else const

    def _plus(self, other: Whole, sign: int) -> Any:
        terms = dict(self.terms)
        for index, factor in other.terms.items():
            total = lowest(terms.get(index, 0) + sign * factor)
            if total:
                terms[index] = total
            else:
                del terms[index]
        value = lowest(self.value + sign * other.value)
        return self._sum(lowest(self.const + sign * other.const), terms, value)

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Whole):
            return self._plus(other, 1)
        if isinstance(other, (int, Fraction)):
            return Whole(self.tape, lowest(self.const + other), self.terms, lowest(self.value + other))
        return self.as_real() + other if isinstance(other, (float, Real)) else NotImplemented

    __radd__ = __add__

    def __neg__(self) -> Any:
        return self._scaled(-1)

    def __pos__(self) -> Whole:
        return self

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, Whole):
            return self._plus(other, -1)
        if isinstance(other, (int, Fraction)):
            return self + -other
        return self.as_real() - other if isinstance(other, (float, Real)) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        if type(other) is int:
            return self._scaled(other)
        if not isinstance(other, Whole):
            if isinstance(other, (int, Fraction)):
                return self._scaled(lowest(other))
            return self.as_real() * other if isinstance(other, (float, Real)) else NotImplemented
        ours, a = self._unit()
        theirs, b = other._unit()
        pair = (a, b) if a.recorded <= b.recorded else (b, a)
        product = made(self.tape, "times", pair, a.value * b.value, corners(_times, a, b))
        return product._scaled(lowest(ours * theirs))

    __rmul__ = __mul__

    def _unit(self) -> tuple[Exact, Whole]:
        """The number as a factor times an atom alone where it is one; otherwise times what has whole coefficients."""
        if len(self.terms) == 1 and self.const == 0:
            ((index, factor),) = self.terms.items()
            if factor == 1:
                return 1, self
            return factor, Whole(self.tape, 0, {index: 1}, self.value // factor)
        scale = self.scale
        return (1, self) if scale == 1 else (Fraction(1, scale), self._scaled(scale))

    def __floordiv__(self, other: Any) -> Any:
        if isinstance(other, (float, Real)):
            return NotImplemented
        if isinstance(other, Fraction) or self.scale > 1:
            both = math.lcm(
                self.scale, other.scale if isinstance(other, Whole) else Fraction(other).denominator
            )
            return (self * both) // lowest(other * both)
        if isinstance(other, int) and all(part % other == 0 for part in (self.const, *self.terms.values())):
            terms = {index: part // other for index, part in self.terms.items()}
            return Whole(self.tape, self.const // other, terms, self.value // other)
        return _quotient(self.tape, self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        return _quotient(self.tape, other, self) if other else 0

    def __mod__(self, other: Any) -> Any:
        low, high = bounds_of(other)
        if low <= 0 or self.scale > 1:
            return self - other * (self // other)
        if isinstance(other, int) and all(part % other == 0 for part in (self.const, *self.terms.values())):
            return 0
        return made(self.tape, "modulo", (self, other), self.value % value_of(other), (0, high - 1))

    def __rmod__(self, other: Any) -> Any:
        return other - self * (other // self)

    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, Fraction):
            return self._scaled(1 / other)
        return self.as_real() / (other.as_real() if isinstance(other, Whole) else other)

    def __rtruediv__(self, other: Any) -> Any:
        return operated("divided_by", float(other), self.as_real()) if other else 0.0

    def __ceil__(self) -> Any:
        scale = self.scale
        return self if scale == 1 else -(-(self * scale) // scale)

    def __rlshift__(self, other: int) -> Any:
        low, high = self.bounds()
        bounds = (other << low, other << high) if low >= 0 and high < 4096 else (0, INFINITE)
        return made(self.tape, "shifted", (other, self), other << int(self.value), bounds)

    def bit_length(self) -> Any:
        """Binary digits."""
        low, high = self.bounds()
        bounds = (int(low).bit_length(), int(high).bit_length()) if low >= 0 else (0, INFINITE)
        return made(self.tape, "bit_length", (self,), int(self.value).bit_length(), bounds)

    def __index__(self) -> int:
        return int(self)


def _times(a: Any, b: Any) -> Any:
    return a * b


def _quotient(tape: Tape, a: Any, b: Any) -> Whole:
    low, _ = bounds_of(b)
    bounds = corners(lambda x, y: x // y, a, b) if low > 0 else (-INFINITE, INFINITE)
    return made(tape, "quotient", (a, b), value_of(a) // value_of(b), bounds)
