"""The little of YAML and TOML that fragments need: sections of scalars."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_TEXT = frozenset({"no", "yes", "on", "off", "true", "false", "null", "y", "n"})


def yaml_text(data: Mapping[str, Any], comments: Iterable[str] = ()) -> str:
    """A mapping, its sections one level deep, in block style under its comments."""
    lines = [f"# {line}" for line in comments]
    for name, value in data.items():
        if isinstance(value, Mapping):
            lines.append(f"{name}:")
            lines += [f"  {key}: {_yaml_scalar(inner)}" for key, inner in value.items()]
        else:
            lines.append(f"{name}: {_yaml_scalar(value)}")
    return "\n".join(lines) + "\n"


def _yaml_scalar(value: Any) -> str:
    """A scalar that YAML 1.1 and 1.2 read alike: words that one of them takes for a truth value are quoted."""
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXT else json.dumps(value)
    return json.dumps(value)


def toml_text(data: Mapping[str, Mapping[str, Any]], comments: Iterable[str] = ()) -> str:
    """Tables of scalars under their comments; empty tables are left out."""
    blocks = ["\n".join(f"# {line}" for line in comments)]
    for name, table in data.items():
        if table:
            blocks.append("\n".join([f"[{name}]", *(f"{key} = {json.dumps(v)}" for key, v in table.items())]))
    return "\n\n".join(block for block in blocks if block) + "\n"
