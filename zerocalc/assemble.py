"""Words, and the files they name -> a Job. Of several levels the first that says something wins, its files included."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from zerocalc.errors import SpecError
from zerocalc.readers.reading import Given, Reading

if TYPE_CHECKING:
    from zerocalc.specs.job import Job

PAPER = "paper"
JOB_FILE = "job"


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
            raise SpecError(f"{label}: {JOB_FILE}: must be the path of a job file (got {path!r:.60})")
        reading.files[JOB_FILE] = Given(str(base / path), f"file:{label}:{JOB_FILE}")
    return reading


def _is_relative_path(model: Any) -> bool:
    from zerocalc.resolve_model import is_path

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
        from zerocalc.resolve import WORDS, resolve

        merged = self.read(levels)
        merged.values["framework"] = _framework(merged)
        _refuse_several(merged)
        presets = merged.files.get("presets")
        settings = _settings(merged, levels)
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
            merged.absorb(Reading(values=said.values, settings=said.settings, files=said.files))
            files = dict(said.files)
            for kind in READERS:
                if kind in files and kind not in read:
                    read.add(kind)
                    found = self._file(kind, files[kind].value, {**merged.values, **known})
                    merged.absorb(found)
                    files = {**found.files, **files}
        return merged

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

    return read_deepspeed(path, dp=ranks)


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


def _framework(merged: Reading) -> Given:
    """Whose implementation; one that only a file implies and that is not modelled gives way to the papers."""
    from zerocalc.frameworks import FRAMEWORKS

    given = merged.values.get("framework")
    if given is None:
        return Given(PAPER, "default")
    if isinstance(given.value, list):
        return given
    if given.value in FRAMEWORKS or given.origin.endswith("framework"):
        return given
    merged.assumptions.append(
        f"the file is {given.value}'s, answered in the papers' ideal (framework {PAPER})"
    )
    return Given(PAPER, given.origin)


def _settings(merged: Reading, levels: Sequence[Reading]) -> dict[str, Given]:
    """The settings that the framework has; others are warned of, but for a level's own, which are refused later."""
    from zerocalc.frameworks import framework_named

    if not merged.settings:
        return {}
    framework = merged.values["framework"].value
    own = {name for said in levels for name in said.settings}
    rows = own | {row.name for row in framework_named(framework).SETTINGS}
    foreign = [name for name in merged.settings if name not in rows]
    if foreign:
        merged.warnings.append(f"no effect in framework {framework}: {', '.join(foreign)}")
    return {name: given for name, given in merged.settings.items() if name in rows}
