"""What was typed, and the files it names, as a question to the core: one job, the strategies and frameworks asked."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerocalc.assemble import PAPER, READERS, Assembler, completed
from zerocalc.cli.options import OUTPUT_WORDS
from zerocalc.errors import UsageError
from zerocalc.readers.reading import Given, Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from zerocalc.specs.job import Job

FILE_WORDS = tuple(READERS)
_ELSEWHERE = {*OUTPUT_WORDS, *FILE_WORDS, "presets", "set", "strategy", "framework", "require_fit", "model"}


STARTING_POINTS = {"params": {"model": "1b"}, "micro-batch": {"micro_batch": 1}, "seq-len": {"seq_len": 1}}
"""What stands in for the unknown of `solve` until it is found."""


@dataclass(frozen=True, slots=True)
class Question:
    """One job and how often it is to be answered."""

    job: Job
    strategies: tuple[str, ...]
    """Those asked for by name; empty when none was."""
    frameworks: tuple[str, ...]

    def strategies_or(self, usual: Sequence[str]) -> tuple[str, ...]:
        """The strategies asked for, or the usual ones and the one that a file names."""
        if self.strategies:
            return self.strategies
        extra = () if self.job.strategy in usual else (self.job.strategy,)
        return (*usual, *extra)


def question(typed: Mapping[str, Any], *, unknown: str = "") -> Question:
    """Build the question from a command's options; what is `unknown` need not be given.

    Raises ZerocalcError for bad input.
    """
    from zerocalc.resolve import resolve

    flags = _flags(typed)
    reading = Assembler().read([Reading(values=flags, files=_files(typed))])
    values = dict(reading.values)
    for word, start in STARTING_POINTS.get(unknown, {}).items():
        values.setdefault(word, Given(start, "default"))
    strategies = _names(values.pop("strategy", None), _strategy_name)
    named, frameworks = _known(_names(values.pop("framework", None), str.lower), reading, typed)
    settings = {**_settings_of(named, reading), **_set_flags(typed.get("set") or ())}
    if strategies:
        values["strategy"] = strategies[0]
    values["framework"] = named[0]
    folder = presets_dir(typed)
    job = resolve(
        _job_words(values), settings, presets_dir=folder, default_gpus=1 if unknown == "gpus" else None
    )
    job = completed(job, settings, reading)
    by_flag = bool(typed.get("strategy")) or len(strategies) > 1
    return Question(job, tuple(given.value for given in strategies) if by_flag else (), frameworks)


def one(asked: Question) -> Question:
    """The question, which must be about one strategy and one framework. Raises UsageError for several."""
    for flag, names in (("--strategy", asked.strategies), ("--framework", asked.frameworks)):
        if len(names) > 1:
            raise UsageError(
                f"{flag} {','.join(names)}: estimate answers for one",
                hint="`zerocalc compare` puts several side by side",
            )
    return asked


def required_model(typed: Mapping[str, Any]) -> str:
    """MODEL, where nothing else can name it. Raises UsageError when it is missing."""
    if typed.get("model") is None:
        raise UsageError("which model?", hint="give a preset (llama-3-8b) or a path (./config.json)")
    return str(typed["model"])


def presets_dir(typed: Mapping[str, Any]) -> Path | None:
    """The folder of the user's own presets, by flag or by environment."""
    folder = typed.get("presets") or os.environ.get("ZEROCALC_PRESETS")
    return Path(folder) if folder else None


def _flags(typed: Mapping[str, Any]) -> dict[str, Given]:
    """What was typed, as words of the job; an option that was not given is absent."""
    words = {name: value for name, value in typed.items() if name not in _ELSEWHERE}
    words |= {name: ",".join(typed[name]) for name in ("strategy", "framework") if typed.get(name)}
    words["model"] = typed.get("model")
    given = {
        name: value
        for name, value in words.items()
        if value is not None and value != () and value is not False
    }
    return {
        name: Given(list(value) if isinstance(value, tuple) else value, "flag")
        for name, value in given.items()
    }


def _files(typed: Mapping[str, Any]) -> dict[str, Given]:
    """The files that were named."""
    return {name: Given(typed[name], "flag") for name in FILE_WORDS if typed.get(name)}


def _strategy_name(text: str) -> str:
    """The strategy's own name where the text is one; FSDP's names stay as typed, so that the answer can say so."""
    from zerocalc.strategies import strategy_named

    return strategy_named(text).name


def _names(given: Given | None, named: Callable[[str], str]) -> list[Given]:
    """The parts of a comma-separated value or a list, each with the value's origin."""
    if given is None:
        return []
    parts = given.value if isinstance(given.value, list) else str(given.value).split(",")
    texts = [str(part).strip() for part in parts]
    if not all(texts):
        raise UsageError(
            f"{','.join(texts)!r}: a name is empty", hint="write them with commas between, like zero2,zero3"
        )
    return [Given(named(text), given.origin) for text in dict.fromkeys(texts)]


def _known(
    frameworks: list[Given], reading: Reading, typed: Mapping[str, Any]
) -> tuple[list[Given], tuple[str, ...]]:
    """The frameworks to answer in; one that only a file implies and that is not modelled gives way to the papers."""
    from zerocalc.frameworks import FRAMEWORKS

    if not frameworks:
        return [Given(PAPER, "default")], ()
    if not typed.get("framework") and frameworks[0].value not in FRAMEWORKS:
        reading.assumptions.append(
            f"the file is {frameworks[0].value}'s, answered in the papers' ideal (framework {PAPER})"
        )
        return [Given(PAPER, frameworks[0].origin)], ()
    return frameworks, tuple(given.value for given in frameworks) if len(frameworks) > 1 else ()


def _settings_of(frameworks: list[Given], reading: Reading) -> dict[str, Given]:
    """The file's settings that a framework asked for has; the others are named in a warning, not dropped silently."""
    from zerocalc.frameworks import framework_named

    if not reading.settings:
        return {}
    rows = {row.name for given in frameworks for row in framework_named(given.value).SETTINGS}
    foreign = [name for name in reading.settings if name not in rows]
    if foreign:
        names = ", ".join(given.value for given in frameworks)
        reading.warnings.append(f"no effect in framework {names}: {', '.join(foreign)}")
    return {name: given for name, given in reading.settings.items() if name in rows}


def _set_flags(pairs: Sequence[str]) -> dict[str, Given]:
    """`--set KEY=VALUE`, each once."""
    settings: dict[str, Given] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"--set {pair}: must be KEY=VALUE", hint="like --set reduce_bucket_size=5e8")
        settings[name.strip()] = Given(value.strip(), "flag")
    return settings


def _job_words(values: Mapping[str, Given]) -> dict[str, Given]:
    """The words that make a job; what a file says beyond them is for other commands."""
    from zerocalc.resolve import WORDS

    return {name: given for name, given in values.items() if name in WORDS}
