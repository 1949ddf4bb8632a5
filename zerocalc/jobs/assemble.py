"""Words, and the files they name -> a Job. Of several levels the first that says something wins, its files included."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from zerocalc.errors import SpecError, UsageError, shown
from zerocalc.readers.reading import MISSING, Given, Reading

if TYPE_CHECKING:
    from zerocalc.specs.job import Job

PAPER = "paper"
JOB_FILE = "job"
ALTERNATIVES = (("gpus", "dp"), ("lora_rank", "trainable"))
"""Words that say one thing in two ways: once one is said, a lower level's other one no longer counts."""


def level(data: Mapping[str, Any] | str, label: str, base: Path) -> Reading:
    """One level of a project file: flags as keys, or the path of a job file. Paths are relative to `base`.

    Raises SpecError for an unknown key or a value of the wrong type.
    """
    from zerocalc.readers.jobfile import job_reading

    words = {JOB_FILE: data} if isinstance(data, str) else dict(data)
    path = words.pop(JOB_FILE, None)
    if _is_relative_path(words.get("model")):
        words["model"] = f"./{words['model']}"
    reading = job_reading(words, label, base=base)
    if "hub" in reading.files:
        raise SpecError(f"{label}: hub: budgets read no network", hint="name a preset or a config.json")
    if path is not None:
        if not isinstance(path, str) or not path.strip():
            raise SpecError(f"{label}: {JOB_FILE}: must be the path of a job file (got {shown(path)})")
        reading.files[JOB_FILE] = Given(str(base / path), f"file:{label}:{JOB_FILE}")
    return reading


def _is_relative_path(model: Any) -> bool:
    from zerocalc.jobs.model import is_path

    return isinstance(model, str) and is_path(model) and model[:1] not in "./~"


class Assembled(NamedTuple):
    """A job, and a text that is the same for jobs that differ in nothing but where their words stand."""

    job: Job
    key: str


class Assembler:
    """Builds jobs of one run; every file is read once for each number of ranks it is read with."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, str, int | None], Reading] = {}

    def job(self, levels: Sequence[Reading]) -> Assembled:
        """The job that the levels describe together, the most specific first.

        Raises ZerocalcError for what cannot be read or contradicts itself.
        """
        from zerocalc.jobs.givens import WORDS
        from zerocalc.jobs.resolve import resolve

        merged = self.read(levels)
        if (hub := merged.files.get("hub")) is not None:
            raise SpecError(f"{hub.origin}: budgets read no network", hint="name a preset or a config.json")
        _refuse_several(merged)
        frameworks = frameworks_of(merged)
        merged.values["framework"] = frameworks[0]
        presets = merged.files.get("presets")
        settings = settings_of(merged, frameworks, own={name for said in levels for name in said.settings})
        job = resolve(
            {name: given for name, given in merged.values.items() if name in WORDS},
            settings,
            presets_dir=Path(presets.value) if presets else None,
        )
        said = (merged.values, settings, {"presets": presets} if presets else {})
        key = repr([sorted((name, given.value) for name, given in group.items()) for group in said])
        return Assembled(completed(job, settings, merged), key)

    def read(self, levels: Sequence[Reading]) -> Reading:
        """Everything that is said; each kind of file is read once, at the level that names it first."""
        merged, read = Reading(), set()
        known: dict[str, Given] = {}
        for said in levels:
            known = {**said.values, **known}
        for said in levels:
            _add(merged, Reading(values=said.values, settings=said.settings, files=said.files))
            files = dict(said.files)
            for kind in READERS:
                if kind in files and kind not in read:
                    read.add(kind)
                    found = self._file(
                        kind, files[kind].value, self._known(files, {**merged.values, **known})
                    )
                    _add(merged, found)
                    files = {**found.files, **files}
        _settle(merged, read)
        return merged

    def _known(self, files: Mapping[str, Given], known: Mapping[str, Given]) -> Mapping[str, Given]:
        """What is known before a file is read: the processes that a launcher's file starts are."""
        launcher = files.get("accelerate")
        if launcher is None or "deepspeed" not in files or not known.keys().isdisjoint(ALTERNATIVES[0]):
            return known
        return {**self._file("accelerate", launcher.value, known).values, **known}

    def _file(self, kind: str, path: str, known: Mapping[str, Given]) -> Reading:
        row = READERS[kind]
        ranks = row.ranks(known)
        key = (kind, path, ranks)
        if key not in self._read:
            self._read[key] = row.read(path, ranks)
        return self._read[key]


def completed(job: Job, settings: Mapping[str, Given], reading: Reading) -> Job:
    """The job with settings that a file leaves to `auto` as its own tool fills them in, and with what readers noted."""
    noted = list(reading.assumptions)
    changes: dict[str, Any] = {}
    if any(given.value == "auto" for given in settings.values()):
        from zerocalc.readers.deepspeed import resolve_auto

        sizes = job.model.architecture.dimensions if job.model.architecture else None
        resolved, assumptions = resolve_auto(settings, sizes.hidden_size if sizes else None)
        noted += assumptions
        origins = {word: origin for word, origin in job.origins.items() if not word.startswith("settings.")}
        origins |= {f"settings.{name}": given.origin for name, given in resolved.items()}
        changes = {"settings": {name: given.value for name, given in resolved.items()}, "origins": origins}
    if not changes and not noted and not reading.warnings:
        return job
    changes["assumptions"] = (*job.assumptions, *dict.fromkeys(noted))
    changes["warnings"] = (*dict.fromkeys(reading.warnings), *job.warnings)
    return job.model_copy(update=changes)


_MOOT = {
    "deepspeed": MISSING,
    "model": "name the MODEL to size",
    "precision": "with --precision",
    "strategy": "with --strategy",
    "optimizer": "with --optimizer",
    "k": "or --k",
    "checkpointing": "say --checkpointing",
    "shard_size": "--shard-size",
    "trainable": "with --trainable",
}
"""What a reader notes for want of something, by what makes it moot: a file that was read, a word that was said."""


def _settle(merged: Reading, read: Collection[str]) -> None:
    """Leave out what one file could not tell and another one does."""
    moot = [text for said, text in _MOOT.items() if said in read or said in merged.values]
    for notes in (merged.warnings, merged.assumptions):
        notes[:] = [note for note in notes if not any(text in note for text in moot)]


def _add(merged: Reading, said: Reading) -> None:
    """Add a lower level; of words that say one thing in two ways it keeps none that a higher level has said."""
    told = {word for group in ALTERNATIVES if not merged.values.keys().isdisjoint(group) for word in group}
    values = {word: given for word, given in said.values.items() if word not in told}
    merged.absorb(replace(said, values=values))


def _refuse_several(merged: Reading) -> None:
    for word in ("strategy", "framework"):
        given = merged.values.get(word)
        if given is not None and isinstance(given.value, list):
            where = given.origin.removeprefix("file:")
            raise SpecError(f"{where}: a budget is about one {word} (got {', '.join(given.value)})")


def _degree(known: Mapping[str, Given]) -> int | None:
    """The data-parallel degree, said outright or left of the GPUs once the degrees around it are divided out."""
    if (dp := _whole(known, "dp")) is not None:
        return dp
    world, around = _whole(known, "gpus"), 1
    for word in ("tp", "pp", "cp"):
        around *= _whole(known, word) or 1
    return world // around if world is not None and world % around == 0 else None


def _whole(known: Mapping[str, Given], word: str) -> int | None:
    given = known.get(word)
    text = str(given.value) if given is not None else ""
    return int(text) if text.isascii() and text.isdigit() and 0 < len(text) <= 12 and int(text) > 0 else None


def _gpus(known: Mapping[str, Given]) -> int | None:
    return _whole(known, "gpus")


def _no_ranks(_known: Mapping[str, Given]) -> None:
    return None


def _job(path: str, _ranks: int | None) -> Reading:
    from zerocalc.readers.jobfile import read_job

    return read_job(path)


def _deepspeed(path: str, ranks: int | None) -> Reading:
    from zerocalc.readers.deepspeed import read_deepspeed

    reading = read_deepspeed(path, dp=ranks)
    if ranks is not None:
        reading.values.pop("dp", None)
    return reading


def _accelerate(path: str, ranks: int | None) -> Reading:
    from zerocalc.readers.accelerate import read_accelerate

    return read_accelerate(path, dp=ranks)


def _torchtitan(path: str, ranks: int | None) -> Reading:
    from zerocalc.readers.torchtitan import read_torchtitan

    return read_torchtitan(path, gpus=ranks)


class Reader(NamedTuple):
    """How a kind of file is read, and the ranks it is read with."""

    read: Callable[[str, int | None], Reading]
    ranks: Callable[[Mapping[str, Given]], int | None]


READERS = {
    JOB_FILE: Reader(_job, _no_ranks),
    "deepspeed": Reader(_deepspeed, _degree),
    "accelerate": Reader(_accelerate, _degree),
    "torchtitan": Reader(_torchtitan, _gpus),
}
"""The files a job can be told by; a job file stands before other tools' files."""


def names_of(given: Given | None, named: Callable[[str], str]) -> list[Given]:
    """The parts of a comma-separated value or a list, each with the value's origin. Raises UsageError for an empty one."""
    if given is None:
        return []
    parts = given.value if isinstance(given.value, list) else str(given.value).split(",")
    texts = [str(part).strip() for part in parts]
    if not all(texts):
        raise UsageError(
            f"{','.join(texts)!r}: a name is empty", hint="write them with commas between, like zero2,zero3"
        )
    return [Given(named(text), given.origin) for text in dict.fromkeys(texts)]


def frameworks_of(merged: Reading) -> list[Given]:
    """Whose implementations; one that only a file implies and that is not modelled gives way to the papers."""
    from zerocalc.frameworks import FRAMEWORKS

    names = names_of(merged.values.get("framework"), str.lower)
    if not names:
        return [Given(PAPER, "default")]
    first = names[0]
    if first.value in FRAMEWORKS or first.origin == "flag" or first.origin.endswith("framework"):
        return names
    merged.assumptions.append(
        f"the file is {first.value}'s, answered in the papers' ideal (framework {PAPER})"
    )
    return [Given(PAPER, first.origin)]


def settings_of(merged: Reading, frameworks: Sequence[Given], *, own: Collection[str]) -> dict[str, Given]:
    """The settings that one of the frameworks has; others are warned of.

    But for `own` ones and those that no framework has, which are refused later.
    """
    if not merged.settings:
        return {}
    rows = _setting_names(given.value for given in frameworks)
    foreign = [name for name in merged.settings if name not in rows and name not in own]
    if foreign:
        from zerocalc.frameworks import FRAMEWORKS

        known = _setting_names(FRAMEWORKS)
        foreign = [name for name in foreign if name in known]
    if foreign:
        names = ", ".join(given.value for given in frameworks)
        merged.warnings.append(
            f"no effect in framework {names}, which has no such settings: {', '.join(foreign)}"
        )
    return {name: given for name, given in merged.settings.items() if name not in foreign}


def _setting_names(frameworks: Iterable[str]) -> set[str]:
    from zerocalc.frameworks import framework_named

    return {row.name for name in frameworks for row in framework_named(name).SETTINGS}
