"""JSON: the contract that scripts use. Integers stay integers, nothing is rounded or formatted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from zerocalc.results import plain

if TYPE_CHECKING:
    from zerocalc.render import Look


def render(result: Any, look: Look) -> str:  # noqa: ARG001
    """One object, in the order of the contract."""
    return json.dumps(plain(result), indent=2, ensure_ascii=False, allow_nan=False)
