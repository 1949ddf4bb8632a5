"""Schemas of the files people write: job files and zerocalc.toml, so that editors complete and check them.

The keys are the reader's own vocabulary, their descriptions the help of the flags of the same names.
"""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from zerocalc.readers import jobfile
from zerocalc.specs.budget import Project

_COUNT = {"type": ["integer", "string"], "minimum": 1, "pattern": "^[0-9.]"}
_TEXT = {"type": "string", "minLength": 1}
_NAMES = {"type": ["string", "array"], "items": {"type": "string"}, "minLength": 1, "minItems": 1}
_TYPES: dict[Any, dict[str, Any]] = {
    jobfile._count: _COUNT,
    jobfile._text: _TEXT,
    jobfile._count_or_text: {"type": ["integer", "number", "string"], "minLength": 1},
    jobfile._number: {"type": "number", "minimum": 0},
    jobfile._switch: {"type": "boolean"},
    jobfile._names: _NAMES,
    jobfile._name_or_names: _NAMES,
}
"""The shape of each of the reader's checks."""
_CHOICES = {
    "offload_optimizer": ["none", "cpu", "nvme"],
    "offload_params": ["none", "cpu", "nvme"],
    "checkpointing": ["none", "selective", "full"],
}
_SETTINGS = {
    "type": "object",
    "description": "the framework's own settings by their own names",
    "additionalProperties": {"type": ["boolean", "number", "string", "object"]},
}
_OWN = {
    "model": "a count (70b), a preset (llama-3-8b) or a path (./config.json)",
    "hub": "a Hugging Face model id",
}


def _help() -> dict[str, str]:
    """What each flag means, by the word it sets."""
    from zerocalc.cli.options import SECTIONS

    return {
        row.flags.split()[-1].removeprefix("--").replace("-", "_"): row.help
        for rows in SECTIONS.values()
        for row in rows
    } | _OWN


def _words() -> dict[str, Any]:
    """Every key of a job with its type and meaning."""
    help_texts = _help()
    words = {}
    for word, check in jobfile.VOCABULARY.items():
        shape = dict(_TYPES[check])
        if word in _CHOICES:
            shape = {"enum": _CHOICES[word]}
        words[word] = shape | ({"description": help_texts[word]} if word in help_texts else {})
    return words


def job_file() -> dict[str, Any]:
    """A job file: the flags' words, flat or in sections."""
    words = _words()
    sections = {
        name: {
            "type": "object",
            "properties": words | _unprefixed(name, words),
            "additionalProperties": False,
        }
        for name in jobfile.SECTIONS
    }
    return {
        "type": "object",
        "description": "zerocalc's job file: the flags of `zerocalc estimate` as keys",
        "properties": {"$schema": {"type": "string"}, **words, "settings": _SETTINGS, **sections},
        "additionalProperties": False,
    }


def _unprefixed(section: str, words: dict[str, Any]) -> dict[str, Any]:
    """Inside its section a word may leave the section's name away."""
    return {
        word.removeprefix(f"{section}_"): shape
        for word, shape in words.items()
        if word.startswith(f"{section}_")
    }


def project() -> dict[str, Any]:
    """`zerocalc.toml`: what the budgets share, and the budgets."""
    schema = TypeAdapter(Project).json_schema(mode="validation", ref_template="#/$defs/{model}")
    words = {name: shape for name, shape in _words().items() if name != "hub"}
    path = {"type": "string", "description": "the path of a job file"}
    inline = {
        "type": "object",
        "properties": {"job": path, **words, "settings": _SETTINGS},
        "additionalProperties": False,
    }
    schema["$defs"]["Job"] = {"anyOf": [path, inline]}
    for owner in (schema, schema["$defs"]["Budget"]):
        described = owner["properties"]["job"].get("description", "")
        owner["properties"]["job"] = {"$ref": "#/$defs/Job", "description": described}
    return schema


FILES = {"job-file": job_file, "project": project}
"""Schemas of files by kind."""
