"""When the answer is no."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocalc.cli.failures import NO, OK
from zerocalc.errors import UsageError
from zerocalc.evaluate import fits_everywhere

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zerocalc.results import Estimates, Solution


def exit_code(result: Estimates, typed: Mapping[str, Any]) -> int:
    """0, or 1 when a fit was required and nothing fits. Raises UsageError where it cannot be told."""
    if not typed.get("require_fit"):
        return OK
    if all(row.capacity_bytes is None for row in result.results):
        raise UsageError(
            "--require-fit needs the GPU's memory", hint="give --gpu, like --gpu a100-80gb or --gpu 80GB"
        )
    return OK if any(fits_everywhere(row) for row in result.results) else NO


def solved(result: Solution) -> int:
    """0, or 1 when no strategy has an answer."""
    return OK if any(answer.value is not None for answer in result.answers) else NO
