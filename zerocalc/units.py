"""Exact arithmetic on bytes and counts, and how people write them.

GB = 10**9 and GiB = 2**30, always named. Parsing is exact (decimal, never float); rounding happens in `render`.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import TypeVar

from zerocalc.errors import SpecError

MAX_PARAMS = 10**15
MAX_BYTES = 2**63 - 1

COUNT_SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12, "q": 10**15}
BYTE_UNITS = {
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgtp", start=1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgtp", start=1)},
}
DTYPE_BITS = {
    "fp64": 64, "fp32": 32, "tf32": 32, "fp16": 16, "bf16": 16,
    "fp8": 8, "int8": 8, "fp4": 4, "int4": 4, "nf4": 4,
}  # fmt: skip
DTYPE_ALIASES = {
    "float64": "fp64", "double": "fp64", "float32": "fp32", "float": "fp32", "float16": "fp16", "half": "fp16",
    "bfloat16": "bf16", "float8": "fp8", "f32": "fp32", "f16": "fp16",
}  # fmt: skip

_NUMBER = re.compile(r"(?P<digits>[0-9][0-9_,]*(?:\.[0-9_]+)?|\.[0-9]+)(?P<exponent>[eE][+-]?[0-9]{1,4})?")


Number = TypeVar("Number", int, float)


def ceil_div(total: int, parts: int) -> int:
    """Smallest whole number of elements such that `parts` of them cover `total`; integers or integer arrays."""
    return -(-total // parts)


def ceil(value: int | Fraction) -> int:
    """Round up to a whole number; integers and integer arrays pass through unchanged."""
    return math.ceil(value) if isinstance(value, Fraction) or hasattr(value, "__ceil__") else value


def smallest(a: Number, b: Number) -> Number:
    """The smaller of two numbers, element by element for arrays."""
    return a * (a <= b) + b * (a > b)


def largest(a: Number, b: Number) -> Number:
    """The larger of two numbers, element by element for arrays."""
    return a * (a >= b) + b * (a < b)


def _split(text: str) -> tuple[Decimal, str] | None:
    """Split `7.5e9 b` into its exact number and its suffix, or None when it is no number."""
    stripped = text.strip()
    match = _NUMBER.match(stripped)
    if match is None:
        return None
    digits = match["digits"].replace("_", "").replace(",", "")
    try:
        number = Decimal(digits + (match["exponent"] or ""))
    except InvalidOperation:
        return None
    return number, stripped[match.end() :].strip()


def parse_count(text: str, *, name: str = "count", minimum: int = 1, maximum: int = MAX_PARAMS) -> int:
    """Read a count as people write it: `70b`, `7.5e9`, `7_000_000_000`, `1.5T`.

    Raises SpecError when it is no number, not whole, or outside `minimum`..`maximum`.
    """
    split = _split(text.strip().removeprefix("-"))
    if split is None or split[1].lower() not in COUNT_SUFFIXES:
        raise SpecError(
            f"{name}: {text!r} is not a count", hint="write it like 70b, 7.5e9, 7_000_000_000 or 1.5T"
        )
    number, suffix = split
    if number.adjusted() > 40:
        raise SpecError(f"{name}: {text!r} is too large; at most {maximum:,} is supported")
    value = number * COUNT_SUFFIXES[suffix.lower()]
    if value != value.to_integral_value():
        raise SpecError(f"{name}: {text!r} is not a whole number")
    if text.strip().startswith("-") or not minimum <= value <= maximum:
        raise SpecError(f"{name}: must be between {minimum:,} and {maximum:,} (got {text})")
    return int(value)


def parse_size(text: str, *, name: str = "size") -> int:
    """Read a size with its unit, `80GB` (10**9) or `80GiB` (2**30), into whole bytes.

    Raises SpecError for a bare number or an ambiguous unit such as `80g`, naming both readings.
    """
    split = _split(text)
    if split is None:
        raise SpecError(f"{name}: {text!r} is not a size", hint="write it with its unit, like 80GB or 80GiB")
    number, unit = split
    if unit.lower() not in BYTE_UNITS or unit == "b":
        letter = unit[:1].upper() if unit[:1].lower() in "kmgtp" and unit else "G"
        shown = text.strip()[: len(text.strip()) - len(unit)].strip()
        raise SpecError(
            f"{name}: {text!r} has no clear unit",
            hint=f"write {shown}{letter}B (10^{3 * ('KMGTP'.index(letter) + 1)} bytes) or "
            f"{shown}{letter}iB (2^{10 * ('KMGTP'.index(letter) + 1)} bytes)",
        )
    if number.adjusted() > 40 or (value := number * BYTE_UNITS[unit.lower()]) > MAX_BYTES:
        raise SpecError(f"{name}: {text!r} is too large; totals below 2^63 bytes are supported")
    return int(value.to_integral_value(rounding="ROUND_FLOOR"))


def parse_rate(text: str, *, name: str = "rate") -> float:
    """Read a bandwidth, `400GB/s` (bytes) or `400Gb/s` (bits, an eighth), into bytes per second.

    Raises SpecError when the unit or the `/s` is missing.
    """
    stripped = text.strip()
    if not stripped.endswith(("/s", "ps")):
        raise SpecError(f"{name}: {text!r} is not a bandwidth", hint="write it like 400GB/s or 400Gb/s")
    body = stripped[:-2]
    bits = body.endswith("b") and not body.endswith("ib")
    size = parse_size(body[:-1] + "B" if bits else body, name=name)
    if size == 0:
        raise SpecError(f"{name}: must be above 0 (got {text!r})")
    return size / 8 if bits else float(size)


def parse_ratio(text: str, *, name: str = "value", maximum: int | None = None) -> Fraction:
    """Read a non-negative decimal such as `2.03125` exactly. Raises SpecError when it is none, or above `maximum`."""
    split = _split(text)
    if split is None or split[1] or abs(split[0].adjusted()) > 40:
        raise SpecError(f"{name}: {text!r} is not a number", hint="write it like 12 or 2.03125")
    if maximum is not None and split[0] > maximum:
        raise SpecError(f"{name}: must be at most {maximum:,} (got {text})")
    return Fraction(split[0])


def parse_dtype(text: str, *, name: str = "dtype") -> str:
    """Read an element type by its short or long name (`bf16`, `bfloat16`). Raises SpecError for others."""
    lowered = text.strip().lower()
    dtype = DTYPE_ALIASES.get(lowered, lowered)
    if dtype not in DTYPE_BITS:
        raise SpecError(f"{name}: unknown dtype {text!r}", hint=f"one of {', '.join(DTYPE_BITS)}")
    return dtype


def dtype_bytes(dtype: str) -> int | Fraction:
    """Bytes of one element; a Fraction for types below one byte."""
    bits = DTYPE_BITS[dtype]
    return bits // 8 if bits % 8 == 0 else Fraction(bits, 8)
