"""Write every schema: `python -m zerocalc.schemas.generate`. To add one, add a row to `SOURCES`."""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Mapping
from itertools import pairwise
from types import ModuleType
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from zerocalc import results
from zerocalc.architectures import counts
from zerocalc.questions.params import Counts
from zerocalc.questions.presets import PresetAnswer, PresetList
from zerocalc.results import check as results_check
from zerocalc.results import curve as results_curve
from zerocalc.results import explanation as results_explanation
from zerocalc.results import sweep as results_sweep
from zerocalc.results import time as results_time
from zerocalc.schemas import FOLDER
from zerocalc.schemas.files import FILES
from zerocalc.specs import job
from zerocalc.specs.job import Job

SOURCES: dict[str, Any] = {
    "compare": results.Estimates,
    "estimate": results.Estimates,
    "solve": results.Solution,
    "explain": results_explanation.Explanation,
    "contrast": results_explanation.Contrast,
    "params": Counts,
    "presets": PresetList,
    "preset": PresetAnswer,
    "check": results_check.CheckReport,
    "diff": results_check.Diff,
    "baseline": results_check.Baseline,
    "sweep": results_sweep.SweepAnswer,
    "plan": results_sweep.PlanAnswer,
    "job": Job,
    **FILES,
}
"""What each schema is made from: a class, or a function that writes the schema of a file."""
vars(results).update(Timing=results_time.Timing, Crossover=results_time.Crossover, Curve=results_curve.Curve)
# Only types there: an answer without seconds or curves need not load them.
DOCUMENTED = {
    counts,
    results,
    results_check,
    results_curve,
    results_explanation,
    results_sweep,
    results_time,
    job,
}
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def attribute_docstrings(module: ModuleType) -> dict[str, dict[str, str]]:
    """The text under each attribute of a module's classes, by class and attribute.

    Read from the source here rather than by pydantic, which would read it at every start of the command line.
    """
    docs: dict[str, dict[str, str]] = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ClassDef):
            for attribute, below in pairwise(node.body):
                text = (
                    isinstance(below, ast.Expr)
                    and isinstance(below.value, ast.Constant)
                    and below.value.value
                )
                if isinstance(attribute, ast.AnnAssign) and isinstance(attribute.target, ast.Name) and text:
                    docs.setdefault(node.name, {})[attribute.target.id] = inspect.cleandoc(str(text))
    return docs


def describe(schema: dict[str, Any], name: str, docs: Mapping[str, Mapping[str, str]]) -> None:
    """Add the attributes' docstrings to a schema's properties, and to those of its definitions."""
    for title, definition in [(name, schema), *schema.get("$defs", {}).items()]:
        for attribute, text in docs.get(title, {}).items():
            if attribute in definition.get("properties", {}):
                definition["properties"][attribute].setdefault("description", text)


def schema_of(kind: str) -> dict[str, Any]:
    """The schema of one kind. An answer always carries every key, and names its kind."""
    source = SOURCES[kind]
    if kind in FILES:
        schema = source()
    else:
        schema = TypeAdapter(source).json_schema(mode="serialization", schema_generator=GenerateJsonSchema)
        for module in {sys.modules[source.__module__]} | DOCUMENTED:
            describe(schema, source.__name__, attribute_docstrings(module))
    if "kind" in schema.get("properties", {}):
        schema["properties"]["kind"] = {"const": kind, "title": "Kind", "type": "string"}
        schema["required"] = list(schema["properties"])
    return {
        "$schema": DIALECT,
        "title": f"zerocalc {kind}",
        **{k: v for k, v in schema.items() if k != "title"},
    }


def text_of(kind: str) -> str:
    """The schema as it is committed."""
    return json.dumps(schema_of(kind), indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def main() -> None:
    """Write every schema beside this module."""
    for kind in SOURCES:
        (FOLDER / f"{kind}.json").write_text(text_of(kind), encoding="utf-8")


if __name__ == "__main__":
    main()
