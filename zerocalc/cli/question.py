"""What was typed, and the files it names, as a question to the core: one job, the strategies and frameworks asked."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerocalc.cli.options import OUTPUT_WORDS
from zerocalc.errors import UsageError
from zerocalc.jobs.assemble import READERS, Assembler, completed, frameworks_of, names_of, settings_of
from zerocalc.readers.reading import Given, HubId, Reading
from zerocalc.records import Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from zerocalc.specs.job import Job

FILE_WORDS = tuple(READERS)
_ELSEWHERE = {
    *OUTPUT_WORDS, *FILE_WORDS, "presets", "hub", "project", "no_project", "set", "strategy", "framework",
    "require_fit", "model",
}  # fmt: skip


STARTING_POINTS: dict[str, dict[str, Any]] = {
    "params": {"model": "1b"},
    "micro-batch": {"micro_batch": 1},
    "seq-len": {"seq_len": 1},
}
"""What stands in for the unknown of `solve` until it is found."""


@dataclass(eq=False, repr=False)
class Question(Record):
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
    from zerocalc.jobs.resolve import resolve

    own = _set_flags(typed.get("set") or ())
    shared = _shared(typed)
    levels = [Reading(values=_flags(typed), files=_files(typed), settings=own), *shared]
    reading = Assembler().read(levels)
    _refuse_network(reading, typed)
    _mention(reading, shared)
    values = dict(reading.values)
    for word, start in STARTING_POINTS.get(unknown, {}).items():
        values.setdefault(word, Given(start, "default"))
    strategies = names_of(values.pop("strategy", None), _known_strategy)
    frameworks = frameworks_of(reading)
    settings = settings_of(reading, frameworks, own=own)
    if strategies:
        values["strategy"] = strategies[0]
    values["framework"] = frameworks[0]
    job = resolve(
        _job_words(values),
        settings,
        presets_dir=presets_dir(typed, reading),
        default_gpus=1 if unknown == "gpus" else None,
    )
    job = _with_names(completed(job, settings, reading), strategies[1:])
    by_flag = bool(typed.get("strategy")) or len(strategies) > 1
    several = tuple(given.value for given in frameworks) if len(frameworks) > 1 else ()
    return Question(job, _own_names(strategies) if by_flag else (), several)


def _shared(typed: Mapping[str, Any]) -> list[Reading]:
    """What the project file says for all its jobs, when there is one and it is not left out.

    Raises FileError and SpecError, with file and line, for one that is wrong.
    """
    from zerocalc.jobs.discovery import nearest

    if typed.get("no_project"):
        return []
    path = Path(typed["project"]) if typed.get("project") else nearest(fenced=True)
    if path is None:
        return []
    from zerocalc.jobs.assemble import level
    from zerocalc.jobs.project import read_project

    file = read_project(path)
    return [level(file.project.job, f"{file.label}:{file.lines.of(key='job')}", file.base)]


def _mention(reading: Reading, shared: Sequence[Reading]) -> None:
    """Say that the project file has a part in the answer."""
    for said in shared:
        used = [given for name, given in said.values.items() if reading.values.get(name) is given]
        used += [given for name, given in said.files.items() if reading.files.get(name) is given]
        if used:
            label = used[0].origin.removeprefix("file:").split(":")[0]
            reading.assumptions.append(
                f"{label}: its job gives what is not given here; --no-project leaves it out"
            )


def _refuse_network(reading: Reading, typed: Mapping[str, Any]) -> None:
    hub = reading.files.get("hub")
    if hub is not None and not typed.get("hub"):
        raise UsageError(
            f"{hub.origin}: a file asks for the network", hint=f"ask yourself: --hub {hub.value}"
        )


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
    """MODEL, or what --hub names. Raises UsageError when both or neither is there."""
    if (hub := _hub(typed)) is not None:
        return hub
    if typed.get("model") is None:
        raise UsageError("which model?", hint="give a preset (llama-3-8b) or a path (./config.json)")
    return str(typed["model"])


def _hub(typed: Mapping[str, Any]) -> HubId | None:
    """The model that --hub names. Raises UsageError beside a MODEL."""
    if not typed.get("hub"):
        return None
    if typed.get("model") is not None:
        raise UsageError("MODEL and --hub both name the model", hint="give one of them")
    return HubId(str(typed["hub"]).strip())


def presets_dir(typed: Mapping[str, Any], reading: Reading | None = None) -> Path | None:
    """The folder of the user's own presets, by flag, by file or by environment."""
    named = reading.files.get("presets") if reading is not None else None
    folder = typed.get("presets") or (named.value if named else None) or os.environ.get("ZEROCALC_PRESETS")
    return Path(folder) if folder else None


def _flags(typed: Mapping[str, Any]) -> dict[str, Given]:
    """What was typed, as words of the job; an option that was not given is absent."""
    words = {name: value for name, value in typed.items() if name not in _ELSEWHERE}
    words |= {name: ",".join(typed[name]) for name in ("strategy", "framework") if typed.get(name)}
    words["model"] = _hub(typed) or typed.get("model")
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
    """The files that were named. Raises UsageError for a name that is empty."""
    for name in (*FILE_WORDS, "presets"):
        if typed.get(name) == "":
            raise UsageError(f"--{name}: is empty", hint="name it, or leave the option out")
    return {name: Given(typed[name], "flag") for name in FILE_WORDS if typed.get(name)}


def _known_strategy(text: str) -> str:
    """A strategy's name as it was typed, FSDP's too, so that the answer can say what it stands for."""
    from zerocalc.strategies import strategy_named

    strategy_named(text)
    return text


def _own_names(strategies: Sequence[Given]) -> tuple[str, ...]:
    from zerocalc.strategies import strategy_named

    return tuple(dict.fromkeys(strategy_named(given.value).name for given in strategies))


def _with_names(job: Job, others: Sequence[Given]) -> Job:
    """The job, which says what its own strategy's name stands for, saying so of the others asked for as well."""
    from zerocalc.strategies import read_as

    said = [sentence for given in others if (sentence := read_as(given.value))]
    return job.model_copy(update={"assumptions": (*job.assumptions, *said)})


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
    from zerocalc.jobs.givens import WORDS

    return {name: given for name, given in values.items() if name in WORDS}
