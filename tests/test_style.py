"""The house rules that no linter knows: small modules and functions, formulas of one expression, nothing unread."""

from __future__ import annotations

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import zerocalc
from zerocalc.frameworks import FRAMEWORKS, framework_named
from zerocalc.sources import SOURCES

ROOT = Path(zerocalc.__file__).parent
MODULES = {
    ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}
LONGEST_MODULE = 330
LONGEST_FUNCTION = 45
"""Lines of what it does: without its signature and docstring."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def body_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    """What a function does: its statements without the docstring."""
    return function.body[1:] if ast.get_docstring(function) is not None else function.body


def test_modules_stay_small():
    sizes = {module: len(path.read_text(encoding="utf-8").splitlines()) for module, path in MODULES.items()}
    assert {module: size for module, size in sizes.items() if size > LONGEST_MODULE} == {}


def test_functions_stay_small():
    sizes = {
        f"{module}.{node.name}": (body[-1].end_lineno or 0) - body[0].lineno + 1
        for module in MODULES
        for node in ast.walk(tree_of(module))
        if isinstance(node, FUNCTIONS) and (body := body_of(node))
    }
    assert {function: size for function, size in sizes.items() if size > LONGEST_FUNCTION} == {}


def test_a_formula_is_one_return_expression():
    formulas = [
        node
        for module in MODULES
        if module.startswith("zerocalc.formulas.")
        for node in ast.walk(tree_of(module))
        if isinstance(node, FUNCTIONS)
        and any(ast.unparse(decorator).startswith("formula(") for decorator in node.decorator_list)
    ]
    assert len(formulas) > 50
    assert [node.name for node in formulas if [type(step) for step in body_of(node)] != [ast.Return]] == []


def strings_in(module: str, *, but: ast.AST | None = None) -> set[str]:
    """Every text in a module's code."""
    left_out = {id(node) for node in ast.walk(but)} if but is not None else set()
    return {
        node.value
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out
    }


def test_every_source_is_cited():
    cited = set().union(*(strings_in(module) for module in MODULES if module != "zerocalc.sources"))
    assert set(SOURCES) - cited == set()


def _rows_of_settings(module: str) -> ast.Module:
    """The tables of settings in a module: naming a setting there is not reading it."""
    rows = [
        node
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Setting"
    ]
    return ast.Module([ast.Expr(row) for row in rows], [])


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_setting_is_read(framework):
    home = FRAMEWORKS[framework].module
    shared = ("zerocalc.frameworks.activations", "zerocalc.strategies", "zerocalc.writers")
    readers = [m for m in MODULES if m == home or m.startswith((f"{home}.", *shared))]
    texts = set().union(*(strings_in(module, but=_rows_of_settings(module)) for module in readers))
    # DeepSpeed reads two of them by one name with the element type in front.
    unread = [
        row.name
        for row in framework_named(framework).SETTINGS
        if row.name not in texts and row.name.removeprefix("fp16").removeprefix("bf16") not in texts
    ]
    assert unread == []


def _imports(body: list[ast.stmt]) -> set[str]:
    """What a module imports as it loads: not inside functions, not for types alone."""
    found: set[str] = set()
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, (ast.If, ast.Try)) and "TYPE_CHECKING" not in ast.unparse(node):
            found |= _imports(node.body)
    return found


def test_no_modules_import_each_other():
    graph = {module: (_imports(tree_of(module).body) & set(MODULES)) - {module} for module in MODULES}
    assert len(list(TopologicalSorter(graph).static_order())) == len(MODULES)


def test_only_the_command_line_prints():
    printing = [
        module
        for module in MODULES
        if not module.startswith("zerocalc.cli")
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print"
    ]
    assert printing == []
