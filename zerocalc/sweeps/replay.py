"""A traced run done again: for one point in plain numbers, or for a whole mesh of them in numpy arrays.

The axes of a mesh are open: each array has its length along its own dimension only, so that what depends on few axes
is computed once per distinct value of those, and sums broadcast only at the end.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from zerocalc.sweeps.real import REAL_OPERATIONS, Real
from zerocalc.sweeps.tape import COMPARISONS, Tape, bounds_of
from zerocalc.sweeps.whole import Whole
from zerocalc.units import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

WHOLE_OPERATIONS: dict[str, Callable[..., Any]] = {
    "times": lambda a, b: a * b,
    "quotient": lambda a, b: a // b,
    "modulo": lambda a, b: a % b,
    "shifted": lambda a, b: a << b,
    **COMPARISONS,
}
_MODULAR = frozenset({"times"})
"""Operations whose result is right modulo 2^64 even where an operand wrapped around, as sums' are."""


class Replay:
    """The arithmetic of a tape for other values of its axes."""

    def __init__(self, tape: Tape, axes: Mapping[str, Any]) -> None:
        self._tape = tape
        self._axes = axes
        self._wholes: dict[int, Any] = {}
        self._reals: dict[int, Any] = {}

    def number(self, number: Any) -> Any:
        """A recorded number; a plain one stays what it is. Fractions become floating point."""
        if isinstance(number, Real):
            return self._real(number.atom)
        if not isinstance(number, Whole):
            return float(number) if isinstance(number, Fraction) else number
        scale = number.scale
        return self._sum(number if scale == 1 else number * scale) / scale if scale > 1 else self._sum(number)

    def holds(self, number: Any, outcome: bool) -> Any:
        """Where a decision falls as it did when the tape was made."""
        found = self.number(number)
        return (found != 0) == outcome

    def _sum(self, number: Whole) -> Any:
        """Atoms on few axes are added first, so that little is done on the whole mesh."""
        atoms = self._tape.atoms
        total: Any = number.const
        for index, factor in sorted(
            number.terms.items(), key=lambda item: (len(atoms[item[0]].axes), item[0])
        ):
            part = self._whole(index)
            total = total + (part if factor == 1 else part * factor)
        return total

    def _whole(self, index: int) -> Any:
        if index not in self._wholes:
            self._wholes[index] = self._operate(index)
        return self._wholes[index]

    def _operate(self, index: int) -> Any:
        op, operands, *_ = self._tape.atoms[index]
        if op == "axis":
            return self._axes[operands[0]]
        inputs = [self.number(operand) for operand in operands]
        if op == "bit_length":
            return _bit_length(inputs[0])
        found = WHOLE_OPERATIONS[op](*inputs)
        return found * 1 if op in COMPARISONS else found

    def _real(self, index: int) -> Any:
        if index not in self._reals:
            op, operands, *_ = self._tape.atoms[index]
            if op == "real":
                self._reals[index] = self._in_floats(operands[0])
            else:
                a, b = (self.number(operand) for operand in operands)
                self._reals[index] = REAL_OPERATIONS[op](a, b)
        return self._reals[index]

    def _in_floats(self, number: Any) -> Any:
        """A whole number as floating point, in floating point all the way where 64 bits would not hold it."""
        if not isinstance(number, Whole):
            return float(number)
        if fits(number) or not self._arrays:
            return _float(self.number(number))
        atoms = self._tape.atoms
        total: Any = float(number.const)
        for index, factor in number.terms.items():
            op, operands, *_ = atoms[index]
            whole = Whole(self._tape, 0, {index: 1}, 0)
            if op == "times" and not fits(whole):
                part = self._in_floats(operands[0]) * self._in_floats(operands[1])
            else:
                part = _float(self._whole(index))
            total = total + part * float(factor)
        return total

    @property
    def _arrays(self) -> bool:
        return any(hasattr(values, "dtype") for values in self._axes.values())


def _float(value: Any) -> Any:
    return value.astype(float) if hasattr(value, "astype") else float(value)


def _bit_length(value: Any) -> Any:
    if isinstance(value, int):
        return value.bit_length()
    import numpy as np

    digits = np.arange(63, dtype=np.int64)
    return ((value[..., None] >> digits) > 0).sum(axis=-1)


def fits(number: Any) -> bool:
    """Whether a number stays within 64 bits wherever the axes go."""
    low, high = bounds_of(number)
    return bool(low >= -MAX_BYTES and high <= MAX_BYTES)


def safe_in_arrays(tape: Tape, exact: Iterable[Any]) -> bool:
    """Whether 64-bit arrays give the very integers that Python's would, for these numbers and all they are made of.

    Sums and products may wrap around on the way, as long as what is divided, compared or answered does not.
    """
    seen: set[int] = set()
    pending = [number for number in exact if isinstance(number, (Whole, Real))]
    if not all(fits(number) and _coefficients_fit(number) for number in pending if isinstance(number, Whole)):
        return False
    while pending:
        number = pending.pop()
        for index in number.terms if isinstance(number, Whole) else (number.atom,):
            if index in seen:
                continue
            seen.add(index)
            op, operands, *_ = tape.atoms[index]
            if op == "real":
                if not _floats_safe(tape, operands[0], pending):
                    return False
                continue
            if op == "axis":
                continue
            wholes = [operand for operand in operands if isinstance(operand, Whole)]
            if op not in _MODULAR and not all(map(fits, wholes)):
                return False
            if not all(_coefficients_fit(operand) for operand in wholes):
                return False
            pending += [operand for operand in operands if isinstance(operand, (Whole, Real))]
    return True


def _coefficients_fit(number: Whole) -> bool:
    scale = number.scale
    return all(
        -MAX_BYTES <= int(part * scale) <= MAX_BYTES for part in (number.const, *number.terms.values())
    )


def _floats_safe(tape: Tape, number: Any, pending: list[Any]) -> bool:
    """What is only wanted in floating point may exceed 64 bits, but not what it is divided or compared from."""
    if not isinstance(number, Whole) or fits(number):
        pending += [number] if isinstance(number, Whole) else []
        return True
    for index in number.terms:
        op, operands, *_ = tape.atoms[index]
        alone = Whole(tape, 0, {index: 1}, 0)
        if op == "times" and not fits(alone):
            if not all(_floats_safe(tape, operand, pending) for operand in operands):
                return False
        elif not fits(alone):
            return False
        else:
            pending.append(alone)
    return True
