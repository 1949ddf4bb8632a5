"""One number against one bound: how bounds are read, and whether they hold."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from zerocalc.errors import SpecError, UsageError, shown
from zerocalc.questions.snapshots import metric, unit_of
from zerocalc.results.check import CheckedLimit, Unit, Value
from zerocalc.units import MAX_BYTES, parse_ratio, parse_size

if TYPE_CHECKING:
    from zerocalc.results import Memory, StrategyResult, TierMemory
    from zerocalc.specs.budget import Level, Limit

LEAST_PLAIN_BYTES = 2**20
"""A bare number below this is no number of bytes that anyone means: `80` is 80GB or 80GiB."""
_NEEDS = {
    "fits": "the GPU's memory: give gpu",
    "capacity_bytes": "the GPU's memory: give gpu",
    "headroom_bytes": "the GPU's memory: give gpu",
    "memory.cpu.bytes_per_node": "the GPUs of one node: give gpus_per_node or node",
    "memory.nvme.bytes_per_node": "the GPUs of one node: give gpus_per_node or node",
    "memory.cpu.fits": "the node's memory: give node, or gpus_per_node and host_memory",
    "memory.nvme.fits": "the node's NVMe: give node, or gpus_per_node and nvme_memory",
    "memory.cpu.capacity_bytes": "the node's memory: give node or host_memory",
    "memory.nvme.capacity_bytes": "the node's NVMe: give node or nvme_memory",
}


class Asked(NamedTuple):
    """One bound of one limit, with the place it stands at."""

    limit: Limit
    bound: str
    written: Any
    level: Level
    line: int


class Base(NamedTuple):
    """The metric's former value, or why there is none."""

    value: Value = None
    missing: str | None = None


def check_limit(asked: Asked, result: StrategyResult, base: Base) -> CheckedLimit:
    """The verdict on one bound.

    Raises UnknownNameError for a metric that does not exist, SpecError for a bound that cannot be read, UsageError
    where the metric or the bound needs something that the job does not say.
    """
    path = asked.limit.metric
    value = metric(result, path)
    if value is None:
        raise UsageError(f"{path} is not known", hint=f"it needs {_NEEDS.get(path, 'more of the job')}")
    unit = unit_of(path, value)
    limit, reason = _BOUNDS[asked.bound](asked, value, unit, result, base)
    excess = None if reason else _excess(asked.bound, value, limit)
    failed = reason is None and (value != limit if excess is None else excess > 0)
    if excess is None:
        excess = _missing(path, result)
    return CheckedLimit(
        metric=path,
        unit=unit,
        bound=asked.bound,  # type: ignore[arg-type]
        written=asked.written,
        level=asked.level,
        status="skipped" if reason else "failed" if failed else "passed",
        value=value,
        limit=_plain(limit),
        base=base.value if asked.bound == "max_increase" else None,
        excess=_plain(excess),
        reason=reason,
        line=asked.line,
    )


def _plain(number: Any) -> Any:
    if isinstance(number, Fraction):
        return number.numerator if number.denominator == 1 else float(number)
    return number


def _excess(bound: str, value: Value, limit: Any) -> Any:
    """How far beyond the limit; None where the two are no numbers or must be equal."""
    if bound == "equals" or isinstance(value, (bool, str)) or value is None:
        return None
    number = Fraction(value)
    return limit - number if bound == "min" else number - limit


def _missing(path: str, result: StrategyResult) -> int | None:
    """The bytes that are missing where a memory does not hold what it should; negative is room left."""
    if path == "fits":
        return None if result.headroom_bytes is None else -result.headroom_bytes
    of_memory = _FITS.get(path)
    if result.memory is None or of_memory is None:
        return None
    tier = of_memory(result.memory)
    if tier is None or tier.bytes_per_node is None or tier.capacity_bytes is None:
        return None
    missing: int = tier.bytes_per_node - tier.capacity_bytes
    return missing


_FITS: dict[str, Callable[[Memory], TierMemory | None]] = {
    "memory.cpu.fits": lambda memory: memory.cpu,
    "memory.nvme.fits": lambda memory: memory.nvme,
}


def _amount(asked: Asked, value: Value, unit: Unit, result: StrategyResult, _base: Base) -> tuple[Any, None]:
    """An upper or a lower bound in the metric's unit."""
    name, written = _name(asked), asked.written
    if unit == "word":
        raise SpecError(f"{name}: {asked.limit.metric} is {_word(value)}, no number", hint="use equals")
    if isinstance(written, str) and written.strip().endswith("%"):
        return _share(asked, result), None
    return _number(name, written, unit), None


def _equal(asked: Asked, value: Value, unit: Unit, result: StrategyResult, base: Base) -> tuple[Any, None]:
    """The only value that is allowed."""
    written = asked.written
    if unit == "word":
        if type(written) is not type(value):
            kind = "true or false" if isinstance(value, bool) else "a name"
            raise SpecError(f"{_name(asked)}: must be {kind} (got {shown(written)})")
        return written, None
    if isinstance(written, bool):
        raise SpecError(f"{_name(asked)}: {asked.limit.metric} is a number (got {_word(written)})")
    return _plain(_amount(asked, value, unit, result, base)[0]), None


def _growth(
    asked: Asked, value: Value, unit: Unit, _result: StrategyResult, base: Base
) -> tuple[Any, str | None]:
    """The baseline's value and what it may grow by; without one there is nothing to hold the value against."""
    name, written = _name(asked), asked.written
    if unit == "word":
        raise SpecError(f"{name}: {asked.limit.metric} is {_word(value)} and cannot grow", hint="use equals")
    share = isinstance(written, str) and written.strip().endswith("%")
    growth = _percent(name, str(written)) if share else Fraction(_number(name, written, unit))
    if base.missing:
        return None, base.missing
    if isinstance(base.value, (bool, str)) or base.value is None:
        return None, f"the baseline has no number for {asked.limit.metric}"
    former = Fraction(base.value)
    return former + (abs(former) * growth if share else growth), None


_BOUNDS: dict[str, Callable[..., tuple[Any, str | None]]] = {
    "max": _amount,
    "min": _amount,
    "equals": _equal,
    "max_increase": _growth,
}


def _name(asked: Asked) -> str:
    return f"{asked.limit.metric}: {asked.bound}"


def _word(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _percent(name: str, text: str) -> Fraction:
    return parse_ratio(text.strip()[:-1], name=name) / 100


def _number(name: str, written: Any, unit: Unit) -> int | Fraction:
    """A size or a number, exactly; a size without its unit is refused unless it can only be bytes."""
    if isinstance(written, str):
        return parse_size(written, name=name) if unit == "byte" else parse_ratio(written, name=name)
    if unit == "byte" and 0 < abs(written) < LEAST_PLAIN_BYTES:
        parse_size(str(written).removeprefix("-"), name=name)
    if abs(written) > MAX_BYTES:
        raise SpecError(f"{name}: must be below 2^63 (got a number of {len(str(int(written)))} digits)")
    return Fraction(str(written))


def _share(asked: Asked, result: StrategyResult) -> Fraction:
    """A percentage of what the metric's tier holds."""
    path, name = asked.limit.metric, _name(asked)
    percent = _percent(name, asked.written)
    if path in {"headroom_bytes", "reserve_bytes"} or path.startswith("memory.gpu."):
        whole, need = result.capacity_bytes, "the GPU's memory: give gpu"
    elif path in {"memory.cpu.bytes_per_node", "memory.nvme.bytes_per_node"}:
        tier = path.split(".")[1]
        memory = result.memory
        whole = None if memory is None else getattr(memory, tier).capacity_bytes
        need = _NEEDS[f"memory.{tier}.capacity_bytes"]
    else:
        raise SpecError(
            f"{name}: {asked.written} of what? {path} is no share of a memory",
            hint="give a size or a number, or max_increase for a share of the baseline",
        )
    if whole is None:
        raise UsageError(
            f"{name}: {asked.written} is a share of a size that is not known", hint=f"it needs {need}"
        )
    return percent * whole
