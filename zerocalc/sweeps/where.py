"""The filter of a sweep, `--where EXPR`: comparisons and arithmetic over columns, read by hand, never evaluated as code.

`fits`, `peak_bytes < 70GB and step_s_upper < 2`, `strategy in (zero2, zero3)`, `gpus * micro_batch * grad_accum = 1024`.
A column that is null makes every comparison with it false.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

from zerocalc.errors import SpecError, UsageError
from zerocalc.units import BYTE_UNITS, parse_count, parse_size

Columns = Callable[[str], Any]
Node = Callable[[Columns], Any]

MAX_LENGTH = 10_000
MAX_DEPTH = 50
ALIASES = {
    "peak": "peak_bytes", "time": "step_s_upper", "step_s": "step_s_upper", "sent": "sent_bytes_per_rank",
    "headroom": "headroom_bytes", "states": "model_states_bytes", "volume": "volume_params",
    "tokens_per_s": "tokens_per_s_lower", "host": "host_bytes_per_node", "nvme": "nvme_bytes_per_node",
}  # fmt: skip
"""Short names of columns; a time is its upper bound, a rate its lower one."""

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d[\d_]*\.?\d*(?:[eE][+-]?\d+)?[A-Za-z]*)|(?P<word>[A-Za-z_][\w.-]*\w|[A-Za-z_])"
    r"|(?P<text>'[^']*'|\"[^\"]*\")|(?P<symbol><=|>=|==|!=|[-+*/()<>=,%]))"
)
_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "=": lambda a, b: a == b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}
_ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "%": lambda a, b: a % b,
}
_LEVELS: tuple[tuple[str, ...], ...] = (("+", "-"), ("*", "/", "%"))


class Token(NamedTuple):
    """A piece of the expression and where it starts."""

    kind: str
    text: str
    at: int


def column_named(name: str, known: Sequence[str]) -> str:
    """A column by its name or its short name. Raises UsageError with the near names."""
    key = name.replace("-", "_")
    key = key if key in known else ALIASES.get(key, key)
    if key in known:
        return key
    near = get_close_matches(key, [*known, *ALIASES], n=2, cutoff=0.6)
    meant = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise UsageError(f"no column {name!r}{meant}", hint=f"columns: {', '.join(known)}")


def parse_where(text: str, columns: Sequence[str]) -> Node:
    """Read a filter over the given columns. Raises UsageError naming the place where it cannot be read."""
    if len(text) > MAX_LENGTH:
        raise UsageError(f"--where: more than {MAX_LENGTH:,} characters")
    parser = _Parser(text, list(_tokens(text)), columns)
    node = parser.either()
    if parser.next.kind != "end":
        raise parser.lost()
    return lambda of: _truth(node(of))


def _tokens(text: str) -> Iterator[Token]:
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise UsageError(f"--where {text}: cannot read {text[at:].strip()[:10]!r}", hint=HINT)
        yield Token(match.lastgroup, match[match.lastgroup], at)
        at = match.end()
    yield Token("end", "the end", end)


HINT = "like --where 'fits and peak_bytes < 70GB and step_s_upper < 2'"


def _truth(value: Any) -> Any:
    return False if value is None else value


def _known(function: Callable[[Any, Any], Any], a: Any, b: Any, unknown: Any) -> Any:
    """A function of two values, or `unknown` where one of them is null or they cannot be compared."""
    if a is None or b is None:
        return unknown
    try:
        return function(a, b)
    except TypeError:
        return unknown
    except ZeroDivisionError:
        return None


@dataclass
class _Parser:
    """One token ahead, one function per level of binding."""

    text: str
    tokens: list[Token]
    columns: Sequence[str]
    depth: int = 0

    @property
    def next(self) -> Token:
        return self.tokens[0]

    def lost(self) -> UsageError:
        return UsageError(f"--where {self.text}: did not expect {self.next.text!r}", hint=HINT)

    def take(self, *texts: str) -> str | None:
        """The next token where it is one of these, which is then behind us."""
        if self.next.kind in {"word", "symbol"} and self.next.text.lower() in texts:
            return self.tokens.pop(0).text.lower()
        return None

    def either(self) -> Node:
        left = self.both()
        while self.take("or"):
            left = _logic(left, self.both(), lambda a, b: a | b)
        return left

    def both(self) -> Node:
        left = self.negation()
        while self.take("and"):
            left = _logic(left, self.negation(), lambda a, b: a & b)
        return left

    def negation(self) -> Node:
        if self.take("not"):
            inner = self.nested(self.negation)
            return lambda of: _as_bool(_truth(inner(of))) ^ True
        return self.comparison()

    def nested(self, rule: Callable[[], Node]) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise UsageError(f"--where: nested more than {MAX_DEPTH} deep")
        node = rule()
        self.depth -= 1
        return node

    def comparison(self) -> Node:
        left = self.arithmetic(0)
        result: Node | None = None
        while op := self.take(*_COMPARE):
            right = self.arithmetic(0)
            step = _comparison(_COMPARE[op], left, right)
            result = step if result is None else _logic(result, step, lambda a, b: a & b)
            left = right
        if result is None and self.take("in"):
            return self.membership(left)
        return result or left

    def membership(self, left: Node) -> Node:
        if not self.take("("):
            raise self.lost()
        result = _comparison(_COMPARE["="], left, self.arithmetic(0))
        while self.take(","):
            result = _logic(result, _comparison(_COMPARE["="], left, self.arithmetic(0)), lambda a, b: a | b)
        if not self.take(")"):
            raise self.lost()
        return result

    def arithmetic(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self.value()
        left = self.arithmetic(level + 1)
        while op := self.take(*_LEVELS[level]):
            left = _operation(_ARITHMETIC[op], left, self.arithmetic(level + 1))
        return left

    def value(self) -> Node:
        if self.take("("):
            inner = self.nested(self.either)
            if not self.take(")"):
                raise self.lost()
            return inner
        if self.take("-"):
            inner = self.nested(self.value)
            return _operation(_ARITHMETIC["-"], lambda _: 0, inner)
        if self.next.kind == "number":
            return _constant(_number(self.tokens.pop(0).text))
        if self.next.kind == "text":
            return _constant(self.tokens.pop(0).text[1:-1])
        if self.next.kind == "word" and self.next.text.lower() not in {"and", "or", "not", "in"}:
            return self.name(self.tokens.pop(0).text)
        raise self.lost()

    def name(self, text: str) -> Node:
        """A column, a truth value, or a bare word where a label is compared with one."""
        lowered = text.lower()
        if lowered in _WORDS:
            return _constant(_WORDS[lowered])
        try:
            key = column_named(text, self.columns)
        except UsageError:
            from zerocalc.frameworks import FRAMEWORKS
            from zerocalc.frameworks.terms import PHASES
            from zerocalc.strategies import ALIASES as NAMES
            from zerocalc.strategies import STRATEGIES

            if lowered in NAMES:
                return _constant(NAMES[lowered])
            if lowered in {*STRATEGIES, *FRAMEWORKS, *PHASES, "none", "selective", "full", "cpu", "nvme"}:
                return _constant(lowered)
            raise
        return lambda of: of(key)


_WORDS = {"true": True, "false": False, "null": None, "unknown": None}


def _constant(value: Any) -> Node:
    return lambda _: value


def _number(text: str) -> int | float:
    """A number, a count (`8b`), or a size in bytes (`70GB`)."""
    letters = text.lstrip("0123456789._").lower()
    if letters in BYTE_UNITS and letters != "b":
        return parse_size(text, name="--where")
    try:
        return parse_count(text, name="--where", minimum=0, maximum=2**63 - 1)
    except SpecError:
        try:
            return float(text.replace("_", ""))
        except ValueError:
            raise SpecError(
                f"--where: {text!r} is neither a number nor a size", hint="like 70GB, 8b or 1.5"
            ) from None


def _as_bool(value: Any) -> Any:
    return value.astype(bool) if hasattr(value, "astype") else bool(value)


def _logic(left: Node, right: Node, function: Callable[[Any, Any], Any]) -> Node:
    return lambda of: function(_as_bool(_truth(left(of))), _as_bool(_truth(right(of))))


def _comparison(function: Callable[[Any, Any], Any], left: Node, right: Node) -> Node:
    return lambda of: _known(function, left(of), right(of), False)


def _operation(function: Callable[[Any, Any], Any], left: Node, right: Node) -> Node:
    return lambda of: _known(function, left(of), right(of), None)
