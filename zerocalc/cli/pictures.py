"""What a picture needs beyond the answer: memory over the data-parallel degree."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zerocalc.cli.output import sink_of
from zerocalc.errors import UsageError
from zerocalc.render import FORMATS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zerocalc.results import Estimates
    from zerocalc.specs.job import Job


def with_curves(result: Estimates, job: Job, typed: Mapping[str, Any]) -> Estimates:
    """The answer with its curves where the asked format draws them, or `--chart` asks for them.

    Raises UsageError where the format has no place for a picture.
    """
    asked, fmt = bool(typed.get("chart")), sink_of(typed, result.kind).fmt
    row = FORMATS[fmt]
    if asked and not row.pictures:
        drawing = ", ".join(name for name, each in FORMATS.items() if each.pictures)
        raise UsageError(f"--chart: {fmt} has no place for a picture", hint=f"it goes with {drawing}")
    if not asked and row.pictures != "always":
        return result
    from zerocalc.questions.curve import curves

    return replace(result, curves=curves(job, result.results))
