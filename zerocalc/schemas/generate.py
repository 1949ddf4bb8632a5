"""Write every schema: `python -m zerocalc.schemas.generate`. To add one, add a row to `SOURCES`."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from zerocalc import results, results_check
from zerocalc.questions.params import Counts
from zerocalc.questions.presets import PresetAnswer, PresetList
from zerocalc.schemas import FOLDER
from zerocalc.schemas.files import FILES
from zerocalc.specs.job import Job

SOURCES: dict[str, Any] = {
    "compare": results.Estimates,
    "estimate": results.Estimates,
    "solve": results.Solution,
    "explain": results.Explanation,
    "contrast": results.Contrast,
    "params": Counts,
    "presets": PresetList,
    "preset": PresetAnswer,
    "check": results_check.CheckReport,
    "diff": results_check.Diff,
    "baseline": results_check.Baseline,
    "job": Job,
    **FILES,
}
"""What each schema is made from: a class, or a function that writes the schema of a file."""
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_of(kind: str) -> dict[str, Any]:
    """The schema of one kind. An answer always carries every key, and names its kind."""
    source = SOURCES[kind]
    if kind in FILES:
        schema = source()
    else:
        schema = TypeAdapter(source).json_schema(mode="serialization", schema_generator=GenerateJsonSchema)
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
