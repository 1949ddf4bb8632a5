"""Registering a formula with its symbol, unit and source, and reading its expression from its own code."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Any, TypeVar

from zerocalc.records import Record

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(eq=False, repr=False)
class Entry(Record):
    """What is known about a registered formula."""

    function: Callable[..., Any]
    symbol: str
    unit: str
    source: str

    @property
    def name(self) -> str:
        """The formula's name, as in the code."""
        return self.function.__name__


REGISTRY: dict[Callable[..., Any], Entry] = {}


def formula(*, symbol: str, unit: str, source: str) -> Callable[[F], F]:
    """Register a formula under a citation key of `zerocalc.sources`; the function itself is returned unchanged."""

    def register(function: F) -> F:
        REGISTRY[function] = Entry(function, symbol, unit, source)
        return function

    return register


@dataclass(eq=False, repr=False)
class Applied(Record):
    """A formula together with the numbers it was given and what it came to."""

    entry: Entry
    inputs: Mapping[str, Any]
    value: Any

    @property
    def expression(self) -> str:
        """The formula as text, derived from its code."""
        return expression(self.entry.function)

    @property
    def source(self) -> str:
        """The citation key."""
        return self.entry.source

    def substituted(self) -> str:
        """The formula with the inputs put in place of their names."""
        tree = _return_expression(self.entry.function)
        return ast.unparse(_Substitute(self.inputs).visit(tree))


@dataclass(eq=False, repr=False)
class Grouped(Record):
    """One formula summed over groups of equal tensors: `times` its value in each group."""

    entry: Entry
    groups: tuple[tuple[int, Applied], ...]
    value: Any = field(init=False)
    """The sum over all groups."""

    def __post_init__(self) -> None:
        self.value = sum(times * applied.value for times, applied in self.groups)

    @property
    def inputs(self) -> Mapping[str, Any]:
        """How often each group occurs and its inputs, in order."""
        return {
            "groups": [{"times": times, "inputs": dict(applied.inputs)} for times, applied in self.groups]
        }

    @property
    def expression(self) -> str:
        """The sum as text; evaluate it once per row of `groups`."""
        return f"sum(times * ({expression(self.entry.function)}) for groups)"

    @property
    def source(self) -> str:
        """The citation key."""
        return self.entry.source

    def substituted(self) -> str:
        """One summand per group."""
        return " + ".join(f"{count} * ({applied.substituted()})" for count, applied in self.groups) or "0"


@dataclass(eq=False, repr=False)
class Summed(Record):
    """A sum of named parts, each `times` what one formula gave; parts may follow different formulas."""

    parts: tuple[tuple[str, Any, Applied], ...]
    value: Any = field(init=False)
    """The sum over all parts."""

    def __post_init__(self) -> None:
        self.value = sum(times * applied.value for _, times, applied in self.parts)

    @property
    def inputs(self) -> Mapping[str, Any]:
        """Each part's name, how often it occurs, its bytes, formula and inputs, in order."""
        return {
            "parts": [
                {
                    "name": name,
                    "times": times,
                    "bytes": applied.value,
                    "formula": applied.expression,
                    "inputs": dict(applied.inputs),
                }
                for name, times, applied in self.parts
            ]
        }

    @property
    def expression(self) -> str:
        """The sum as text; each part carries its own formula."""
        return "sum(times * bytes for parts)"

    @property
    def source(self) -> str:
        """The first part's citation key."""
        return self.parts[0][2].source

    def substituted(self) -> str:
        """One summand per part."""
        return " + ".join(f"{count} * {applied.value:,}" for _, count, applied in self.parts)


def apply(function: Callable[..., Any], /, **inputs: Any) -> Applied:
    """Evaluate a registered formula and keep what went in."""
    return Applied(REGISTRY[function], inputs, function(**inputs))


def apply_grouped(function: Callable[..., Any], groups: Iterable[tuple[int, Mapping[str, Any]]]) -> Grouped:
    """Evaluate a registered formula once per group of equal tensors; groups with equal inputs are merged."""
    merged: dict[Any, tuple[int, Mapping[str, Any]]] = {}
    for count, inputs in groups:
        # Recorded numbers (see `sweeps.tape`) are told apart by how they came about, without settling their value.
        key = tuple((name, getattr(value, "recorded", value)) for name, value in inputs.items())
        merged[key] = (merged[key][0] + count if key in merged else count, inputs)
    return Grouped(
        REGISTRY[function], tuple((count, apply(function, **inputs)) for count, inputs in merged.values())
    )


@cache
def expression(function: Callable[..., Any]) -> str:
    """The text of a formula's `return` expression."""
    return ast.unparse(_return_expression(function))


@cache
def _module_functions(module: str) -> dict[str, ast.FunctionDef]:
    loader = sys.modules[module].__loader__
    source = loader.get_source(module)  # type: ignore[union-attr]
    return {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}


def _return_expression(function: Callable[..., Any]) -> ast.expr:
    last = _module_functions(function.__module__)[function.__name__].body[-1]
    assert isinstance(last, ast.Return), f"{function.__name__} is not one return expression"
    assert last.value is not None
    # A copy, because substitution edits the tree in place.
    return ast.parse(ast.unparse(last.value), mode="eval").body


class _Substitute(ast.NodeTransformer):
    def __init__(self, inputs: Mapping[str, Any]) -> None:
        self._inputs = inputs

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Replace an input's name by its number, digits grouped."""
        if node.id not in self._inputs:
            return node
        return ast.Name(id=_shown(self._inputs[node.id]))


def _shown(value: Any) -> str:
    """A number as a reader wants it: whole ones grouped, ratios as decimals."""
    if isinstance(value, Fraction):
        value = value.numerator if value.denominator == 1 else float(value)
    return f"{value:,}" if isinstance(value, int) else str(value)
