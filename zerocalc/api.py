"""The Python front door: build a job from the words the command line uses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerocalc.jobs.givens import WORDS
from zerocalc.jobs.resolve import resolve
from zerocalc.readers.reading import Given

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zerocalc.specs.job import Job


def job(
    model: str | int,
    *,
    gpus: int | None = None,
    dp: int | None = None,
    settings: Mapping[str, Any] | None = None,
    presets_dir: str | Path | None = None,
    **words: Any,
) -> Job:
    """Build a job as the command line would: `job("llama-2-70b", gpus=64, gpu="a100-80gb")`.

    `words` are the flags' names with underscores (`tp`, `strategy`, `precision`, `offload_optimizer`, …), `settings`
    a framework's own knobs. Sizes are text with their unit (`"80GB"`, `"80GiB"`).

    Raises ZerocalcError (of which UsageError, SpecError, UnknownNameError and FileError are kinds) for bad input, and
    TypeError for a word that does not exist.
    """
    if unknown := sorted(set(words) - WORDS):
        raise TypeError(f"job() got an unexpected keyword argument {unknown[0]!r}")
    given = {"model": model, "gpus": gpus, "dp": dp, **words}
    return resolve(
        {word: Given(value, "argument") for word, value in given.items() if value is not None},
        {name: Given(value, "argument") for name, value in (settings or {}).items()},
        presets_dir=Path(presets_dir) if presets_dir else None,
    )
