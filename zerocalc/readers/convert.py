"""Values as people write them in configuration files: `5e8`, `"8"`, `"true"`, `torch.bfloat16`, `${STAGE}`."""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Literal

from zerocalc.errors import SpecError, shown
from zerocalc.units import MAX_BYTES, parse_dtype

if TYPE_CHECKING:
    from collections.abc import Callable

Kind = Literal[
    "count", "positive", "degree", "integer", "number", "bool", "text", "dtype", "device", "names", "any"
]

AUTO = "auto"
DEVICES = ("none", "cpu", "nvme")
_TRUE, _FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})
_PLACEHOLDER = re.compile(
    r"\$.*|.*[$]?\{.*\}.*|%.*%|<.*>|@.*|__.*|[A-Z][A-Z0-9_]*,?|[A-Za-z][A-Za-z0-9]*_[A-Za-z0-9_]*,?",
    re.DOTALL,
)
_DTYPES = {"bfp16": "bf16"}
_WORDS = {
    "bool": _TRUE | _FALSE,
    "device": frozenset(DEVICES),
    "dtype": frozenset({"fp32", "fp16", "bf16", "float", "half", "none", "float32", "float16", "bfloat16"}),
}


def is_placeholder(kind: Kind, value: Any) -> bool:
    """Whether a string stands for a value that a template fills in later."""
    if not isinstance(value, str):
        return False
    text = value.strip()
    if kind in ("text", "names"):
        return text.startswith("$") or "${" in text or "{{" in text
    return text.lower() not in _WORDS.get(kind, ()) and _PLACEHOLDER.fullmatch(text) is not None


def _integer(value: Any) -> int:
    number = _decimal(value)
    if not number.is_finite() or number.adjusted() > 20 or number.copy_abs() > MAX_BYTES:
        raise SpecError(f"must be a number below 2^63 (got {shown(value)})")
    if number.adjusted() < -40 or number != number.to_integral_value():
        raise SpecError(f"must be a whole number (got {shown(value)})")
    return int(number)


def _decimal(value: Any) -> Decimal:
    """The exact number in a value or in its text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise SpecError(f"must be a number (got {shown(value)})")
    text = str(value) if isinstance(value, (int, float)) else value.strip().replace("_", "").replace(",", "")
    try:
        return Decimal(text)
    except (InvalidOperation, ValueError):
        raise SpecError(f"must be a number (got {shown(value)})") from None


def _at_least(minimum: int, *, also: tuple[int, ...] = ()) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        number = _integer(value)
        if number < minimum and number not in also:
            allowed = f"at least {minimum}" + "".join(f" or {other}" for other in also)
            raise SpecError(f"must be {allowed} (got {shown(value)})")
        return number

    return convert


def _number(value: Any) -> float:
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise SpecError(f"must be a number (got {shown(value)})")
    return number


def _boolean(value: Any) -> bool:
    text = str(value).strip().lower()
    if not isinstance(value, (bool, int, str)) or text not in _TRUE | _FALSE:
        raise SpecError(f"must be true or false (got {shown(value)})")
    return text in _TRUE


def _text(value: Any) -> str:
    if isinstance(value, (dict, list, set)):
        raise SpecError(f"must be a name (got {shown(value)})")
    return str(value).strip()


def _dtype(value: Any) -> str:
    text = _text(value).lower().removeprefix("torch.")
    return "none" if text in ("none", "null", "") else parse_dtype(_DTYPES.get(text, text))


def _device(value: Any) -> str:
    text = {"false": "none", "true": "cpu", "null": "none", "": "none"}.get(
        _text(value).lower(), _text(value).lower()
    )
    if text not in DEVICES:
        raise SpecError(f"must be one of {', '.join(DEVICES)} (got {shown(value)})")
    return text


def _names(value: Any) -> list[str]:
    parts = re.split(r"[\s,;+]+", value) if isinstance(value, str) else value
    if isinstance(parts, bool) or not isinstance(parts, (list, tuple)):
        raise SpecError(f"must be a list of names (got {shown(value)})")
    return [str(part).strip() for part in parts if str(part).strip()]


CONVERTERS: dict[Kind, Callable[[Any], Any]] = {
    "count": _at_least(0),
    "positive": _at_least(1),
    "degree": _at_least(1, also=(-1,)),
    "integer": _at_least(-1),
    "number": _number,
    "bool": _boolean,
    "text": _text,
    "dtype": _dtype,
    "device": _device,
    "names": _names,
    "any": lambda value: value,
}
"""How each kind of value is read; each raises SpecError for what it cannot be."""
