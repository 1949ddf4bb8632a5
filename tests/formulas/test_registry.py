"""Every formula prints what it computes: one expression, a known source, a unit."""

from __future__ import annotations

import importlib
import pkgutil
import random
from typing import TYPE_CHECKING, Any

import pytest

import zerocalc.formulas
from zerocalc import units
from zerocalc.formulas.registry import REGISTRY, apply, expression
from zerocalc.sources import SOURCES

if TYPE_CHECKING:
    from collections.abc import Callable

for module in pkgutil.iter_modules(zerocalc.formulas.__path__):
    importlib.import_module(f"zerocalc.formulas.{module.name}")

FORMULAS = sorted(REGISTRY, key=lambda function: (function.__module__, function.__name__))
HELPERS = {name: getattr(units, name) for name in ("ceil", "ceil_div", "smallest", "largest")} | {"int": int}


def random_inputs(function: Callable[..., Any]) -> dict[str, int]:
    names = function.__code__.co_varnames[: function.__code__.co_kwonlyargcount]
    return {name: random.Random(name).randrange(2, 50) for name in names}


@pytest.mark.parametrize("function", FORMULAS, ids=lambda function: function.__name__)
def test_the_printed_expression_is_the_formula(function: Callable[..., Any]) -> None:
    for seed in range(5):
        inputs = {name: value + seed for name, value in random_inputs(function).items()}
        printed = eval(expression(function), {"__builtins__": {}, **HELPERS}, dict(inputs))
        assert printed == function(**inputs)


@pytest.mark.parametrize("function", FORMULAS, ids=lambda function: function.__name__)
def test_the_substituted_line_comes_to_the_value(function: Callable[..., Any]) -> None:
    applied = apply(function, **random_inputs(function))
    text = applied.substituted()
    assert eval(text, {"__builtins__": {}, **HELPERS}) == applied.value


@pytest.mark.parametrize("function", FORMULAS, ids=lambda function: function.__name__)
def test_the_house_rules_of_a_formula(function: Callable[..., Any]) -> None:
    entry = REGISTRY[function]
    code = function.__code__
    assert entry.source in SOURCES
    assert entry.symbol
    assert entry.unit
    assert code.co_argcount == 0, "inputs are keyword-only"
    assert not function.__kwdefaults__, "a default is policy"
    assert function.__doc__
    assert function.__doc__.strip().endswith(".")
