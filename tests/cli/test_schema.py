"""Schemas are what the classes say, and every answer is what its schema says."""

import json

import jsonschema
import pytest

from zerocalc.schemas import kinds, schema_text
from zerocalc.schemas.generate import SOURCES, text_of

from .running import MAIN, call

ANSWERS = {
    "compare": [MAIN, ("compare", "13b", "-n", "8", "--node", "dgx-h100", "--offload-optimizer", "cpu")],
    "estimate": [("estimate", "llama-3-8b", "-n", "8"), ("estimate", "7b", "--dp", "8", "--k", "2.03125")],
    "solve": [
        ("solve", "gpus", "70b", "--gpu", "80GB"),
        ("solve", "strategy", "70b", "-n", "64", "--gpu", "80GB"),
    ],
    "explain": [("explain", "total", "llama-3-8b", "-n", "8"), ("explain", "sent", "7b", "-n", "8")],
    "params": [("params", "mixtral-8x7b")],
    "presets": [("presets", "list")],
    "preset": [("presets", "show", "models", "gpt2"), ("presets", "show", "gpus", "h100")],
}


@pytest.mark.parametrize("kind", SOURCES)
def test_the_committed_schema_is_current(kind):
    assert schema_text(kind) == text_of(kind), "run `python -m zerocalc.schemas.generate`"


def test_nothing_is_committed_that_is_not_generated():
    assert set(SOURCES) <= set(kinds())


@pytest.mark.parametrize("kind", ANSWERS)
def test_answers_validate(kind):
    schema = json.loads(call("schema", kind).out)
    jsonschema.Draft202012Validator.check_schema(schema)
    for arguments in ANSWERS[kind]:
        data = json.loads(call(*arguments, "-f", "json").out)
        jsonschema.validate(data, schema)
        assert data["kind"] == kind


def test_a_list_of_kinds():
    assert call("schema").out.splitlines() == kinds()
