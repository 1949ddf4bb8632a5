"""JSON: the contract that scripts use. Integers stay integers, nothing is rounded or formatted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from zerocalc.results import plain

if TYPE_CHECKING:
    from zerocalc.render import Look


def render(result: Any, look: Look) -> str:
    """One object in the order of the contract: a key a line, and a line for each item of a list.

    Laid out by hand around the encoder's fast path, which has no indentation.
    """
    members = ",\n".join(f"  {json.dumps(key)}: {_member(value)}" for key, value in plain(result).items())
    return f"{{\n{members}\n}}"


def _member(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"    {_line(item)}" for item in value) + "\n  ]"
    return _line(value)


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
