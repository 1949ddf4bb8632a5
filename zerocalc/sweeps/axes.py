"""Axes of a grid, `AXIS=VALUES`: ranges, steps, doublings, lists. A range is never written out; its values are asked for.

`8..64` steps by one, `8..64:8` by eight, `8..1024:*2` doubles, `a,b,c` lists; several may stand with commas between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from zerocalc.errors import SpecError, UsageError, unknown_name
from zerocalc.jobs.givens import WORDS
from zerocalc.results import plain
from zerocalc.specs.types import MAX_RANKS
from zerocalc.units import MAX_PARAMS, parse_count, parse_ratio, parse_size

SETTING = "set."
MAX_VALUES = 10**12
MAX_GRID = 10**15
"""More rows than a decade of sweeping answers."""

COUNT_LIMITS: dict[str, int] = {
    **dict.fromkeys(("gpus", "dp", "tp", "pp", "cp", "ep", "etp", "gpus_per_node", "shard_size"), MAX_RANKS),
    **dict.fromkeys(("micro_batch", "seq_len"), 10**9),
    "grad_accum": 10**7,
    "lora_rank": 10**6,
    **dict.fromkeys(("model", "trainable", "expert_params", "tokens"), MAX_PARAMS),
}
"""Words that are counts, and the largest each may be: a range of them is checked by its ends."""
SIZES = ("gpu", "host_memory", "nvme_memory", "reserve")
RATIOS = ("k", "mfu")


class Span(NamedTuple):
    """Whole numbers from `first` up to `last`, each `step` more than the one before, or `step` times as much."""

    first: int
    last: int
    step: int
    geometric: bool = False

    def length(self) -> int:
        """How many values there are."""
        if not self.geometric:
            return (self.last - self.first) // self.step + 1
        number, value = 0, self.first
        while value <= self.last:
            number, value = number + 1, value * self.step
        return number

    def value(self, index: int) -> int:
        """The value at an index."""
        return self.first * self.step**index if self.geometric else self.first + index * self.step


@dataclass(frozen=True, slots=True)
class Axis:
    """One thing that is varied: a word of the job, or `set.NAME`, a framework's own setting."""

    word: str
    texts: tuple[str, ...] = ()
    """The values as they are typed; empty where `span` makes them."""
    span: Span | None = None

    def __len__(self) -> int:
        return len(self.texts) if self.span is None else self.span.length()

    def text(self, index: int) -> str:
        """One value as it would be typed."""
        return self.texts[index] if self.span is None else str(self.span.value(index))

    @property
    def setting(self) -> str | None:
        """The setting's own name, where it is one."""
        return self.word.removeprefix(SETTING) if self.word.startswith(SETTING) else None

    def numbers(self) -> Sequence[int] | None:
        """The values as whole numbers, lazily; None where they are words."""
        if self.span is not None:
            return _Numbers(self.span)
        try:
            return [parse_count(text, name=self.word, maximum=COUNT_LIMITS[self.word]) for text in self.texts]
        except (SpecError, KeyError):
            return None


class _Numbers(Sequence[int]):
    """A span as a sequence, made when asked."""

    def __init__(self, span: Span, low: int = 0, high: int | None = None) -> None:
        self._span, self._low = span, low
        self._high = span.length() if high is None else high

    def __len__(self) -> int:
        return self._high - self._low

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            low, high, _ = index.indices(len(self))
            return [self._span.value(self._low + at) for at in range(low, high)]
        return self._span.value(self._low + range(len(self))[index])


def parse_axis(text: str) -> Axis:
    """Read `AXIS=VALUES`.

    Raises UsageError where it is not of that form, UnknownNameError for an axis that is no word of a job, SpecError for
    a value out of bounds.
    """
    name, equals, values = text.partition("=")
    word = name.strip() if name.strip().startswith(SETTING) else name.strip().lower().replace("-", "_")
    if not equals or not word or not values.strip():
        raise UsageError(f"--over {text}: must be AXIS=VALUES", hint="like --over gpus=8..1024:*2")
    if word not in WORDS and not (word.startswith(SETTING) and len(word) > len(SETTING)):
        raise unknown_name("axis", name.strip(), sorted(w.replace("_", "-") for w in WORDS), hint=AXES_HINT)
    parts = [part.strip() for part in values.split(",")]
    if not all(parts):
        raise UsageError(
            f"--over {text}: a value is empty", hint="write them with commas between, like zero2,zero3"
        )
    if len(parts) == 1 and ".." in parts[0] and not parts[0].startswith("."):
        span = _span(word, parts[0])
        if span.length() > 1:
            return Axis(word, span=span)
    texts = tuple(dict.fromkeys(item for part in parts for item in _expanded(word, part)))
    return Axis(word, texts)


AXES_HINT = "any option of a job is one, and set.NAME for a framework's setting"
MAX_LISTED = 100_000


def _expanded(word: str, part: str) -> Iterator[str]:
    """A value, or a range inside a list written out."""
    if ".." not in part or part.startswith("."):
        yield part
        return
    span = _span(word, part)
    if span.length() > MAX_LISTED:
        raise SpecError(
            f"--over {word}: {part} has {span.length():,} values in a list", hint="let the range stand alone"
        )
    yield from (str(span.value(index)) for index in range(span.length()))


def _span(word: str, text: str) -> Span:
    """Read `first..last`, `first..last:step`, `first..last:*factor`."""
    ends, _, step = text.partition(":")
    first, _, last = ends.partition("..")
    if word in SIZES or word in RATIOS:
        raise SpecError(
            f"--over {word}: {text} is a range of {'sizes' if word in SIZES else 'fractions'}, whose steps are not whole",
            hint=f"list the values, like --over {word}={_example(word)}",
        )
    limit = COUNT_LIMITS.get(word, MAX_PARAMS)
    name = f"--over {word.replace('_', '-')}"
    if word not in COUNT_LIMITS and not word.startswith(SETTING):
        raise SpecError(
            f"{name}: {text} is a range, but {word} is no number", hint="list the values with commas"
        )
    if any("." in end or "%" in end for end in (first, last)) and not _whole(first, last):
        raise SpecError(
            f"{name}: {text} is a range of fractions, whose steps are not whole", hint="list the values"
        )
    low = parse_count(first, name=name, minimum=0 if word.startswith(SETTING) else 1, maximum=limit)
    high = parse_count(last, name=name, minimum=0 if word.startswith(SETTING) else 1, maximum=limit)
    geometric = step.startswith("*")
    by = (
        parse_count(step.removeprefix("*"), name=f"{name}: step", minimum=2 if geometric else 1)
        if step
        else 1
    )
    if high < low:
        raise SpecError(f"{name}: {text} runs backwards", hint=f"write it as {last}..{first}")
    if geometric and low == 0:
        raise SpecError(f"{name}: {text} never leaves 0", hint="start at 1")
    span = Span(low, high, by, geometric)
    if not geometric and span.length() > MAX_VALUES:
        raise SpecError(f"{name}: {text} has {span.length():,} values; at most {MAX_VALUES:,} are supported")
    return span


def _whole(*ends: str) -> bool:
    try:
        return all(parse_count(end, minimum=0) is not None for end in ends)
    except SpecError:
        return False


def _example(word: str) -> str:
    return "0.3,0.4" if word == "mfu" else "4,12" if word == "k" else "40GB,80GB"


def parse_axes(texts: Sequence[str]) -> list[Axis]:
    """Read several axes, each once. Raises UsageError for one given twice, or for none, SpecError for too many rows."""
    axes = [parse_axis(text) for text in texts]
    if not axes:
        raise UsageError("sweep over what?", hint="give --over AXIS=VALUES, like --over gpus=8..1024:*2")
    for axis in axes:
        if sum(other.word == axis.word for other in axes) > 1:
            raise UsageError(f"--over {axis.word}: given twice", hint="put all its values in one list")
    total = 1
    for axis in axes:
        total *= len(axis)
    if total > MAX_GRID:
        raise SpecError(f"the grid has {total:,} configurations; at most {MAX_GRID:,} are supported")
    return axes


def shown(word: str, text: str) -> int | float | str:
    """A value as a row shows it: counts and sizes as whole numbers, ratios as numbers, anything else as typed."""
    readers: Mapping[str, Callable[[str], int | float]] = {
        **dict.fromkeys(COUNT_LIMITS, parse_count),
        **dict.fromkeys(SIZES, parse_size),
        **dict.fromkeys(RATIOS, lambda ratio: plain(parse_ratio(ratio))),
    }
    if word.startswith(SETTING):
        return _setting_shown(text)
    if word not in readers:
        return text
    try:
        return readers[word](text)
    except SpecError:
        return text


def _setting_shown(text: str) -> int | float | str:
    try:
        number = Decimal(text)
    except ArithmeticError:
        return text
    if not number.is_finite():
        return text
    return int(number) if number == number.to_integral_value() and abs(number) < 10**18 else float(number)
