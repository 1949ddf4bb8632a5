"""zerocalc's own job file: the flags' vocabulary in JSON, TOML or YAML, flat or in sections. Unknown keys are refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from zerocalc.errors import SpecError, shown
from zerocalc.readers.reading import Given, Reading
from zerocalc.readers.text import STDIN, read_mapping
from zerocalc.units import parse_count

Check = Callable[[Any, str], Any]


def _refuse(name: str, value: Any, allowed: str) -> SpecError:
    return SpecError(f"{name}: must be {allowed} (got {shown(value)})")


def _count(value: Any, name: str) -> int:
    if isinstance(value, str):
        return parse_count(value, name=name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _refuse(name, value, "a whole number of at least 1")
    return value


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _refuse(name, value, "a name")
    return value.strip()


def _count_or_text(value: Any, name: str) -> Any:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return (
        value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else _text(value, name)
    )


def _number(value: Any, name: str) -> Any:
    usable = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not usable or not math.isfinite(value) or value < 0:
        raise _refuse(name, value, "a number of at least 0")
    return value


def _scalar(value: Any, name: str) -> Any:
    if not isinstance(value, (bool, int, float, str)) or (
        isinstance(value, float) and not math.isfinite(value)
    ):
        raise _refuse(name, value, "true, false, a number or a name")
    return value


def _switch(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise _refuse(name, value, "true or false")
    return value


def _names(value: Any, name: str) -> list[str]:
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, list) or not value or not all(isinstance(part, str) for part in value):
        raise _refuse(name, value, "a name or a list of names")
    return list(value)


def _name_or_names(value: Any, name: str) -> Any:
    return _text(value, name) if isinstance(value, str) and "," not in value else _names(value, name)


VOCABULARY: dict[str, Check] = {
    **dict.fromkeys(("gpus", "dp", "tp", "pp", "cp", "ep", "etp", "gpus_per_node", "shard_size"), _count),
    **dict.fromkeys(("micro_batch", "seq_len", "grad_accum", "lora_rank", "tokens", "expert_params"), _count),
    **dict.fromkeys(("gpu", "node", "host_memory", "nvme_memory", "precision", "optimizer"), _text),
    **dict.fromkeys(("param_dtype", "grad_dtype", "reduce_dtype", "frozen_dtype"), _text),
    **dict.fromkeys(("offload_optimizer", "offload_params", "checkpointing", "attention"), _text),
    **dict.fromkeys(("deepspeed", "accelerate", "torchtitan", "hub", "presets"), _text),
    **dict.fromkeys(("strategy", "framework"), _name_or_names),
    **dict.fromkeys(("lora_targets", "also"), _names),
    **dict.fromkeys(("k", "mfu"), _number),
    "sequence_parallel": _switch,
    **dict.fromkeys(("model", "trainable", "reserve"), _count_or_text),
    **dict.fromkeys(
        ("peak_flops", "busbw", "network", "host_bandwidth", "nvme_bandwidth", "cpu_adam", "dram_bandwidth"),
        _count_or_text,
    ),
}
"""Every key of a job file, as the flag of the same name, with its shallow check."""

SECTIONS = ("ranks", "machine", "what", "bytes", "offload", "work", "files")
"""Optional groups, as in the help text: `[offload] optimizer = "cpu"` is `offload_optimizer`."""
FILES = ("deepspeed", "accelerate", "torchtitan", "hub", "presets")
"""Keys that name other files: they go to `Reading.files`, with paths relative to the job file."""
_IGNORED = ("$schema", "schema_version")


def read_job(path: str | Path, *, words: Collection[str] = ()) -> Reading:
    """Read a job file (`-` is JSON on standard input). `words` are further words that the caller's jobs know.

    Raises FileError when it cannot be read, SpecError for an unknown key or a value of the wrong type.
    """
    label = "<stdin>" if str(path) == STDIN else str(path)
    data = read_mapping(path, default="json", stdin=True)
    base = Path() if str(path) == STDIN else Path(path).parent
    return job_reading(data, label, base=base, words=words)


def job_reading(
    data: Mapping[str, Any], label: str, *, base: Path | None = None, words: Collection[str] = ()
) -> Reading:
    """The reading of a job that is already a mapping; paths in it are relative to `base`."""
    job = _Job(label, base, words)
    for raw, value in data.items():
        key = _snake(raw)
        if key in _IGNORED:
            continue
        if key == "settings":
            _settings(value, label, job.reading)
        elif key in SECTIONS and isinstance(value, dict):
            for name, inner in value.items():
                snake = _snake(name)
                joined = f"{key}_{snake}"
                job.take(joined if joined in job.vocabulary else snake, inner, f"{raw}.{name}")
        else:
            job.take(key, value, str(raw))
    return job.reading


def _snake(name: object) -> str:
    return str(name).strip().replace("-", "_")


class _Job:
    """A job file being read."""

    def __init__(self, label: str, base: Path | None, words: Collection[str]) -> None:
        self.vocabulary = {**dict.fromkeys(words, _scalar), **VOCABULARY}
        self.label = label
        self.base = base
        self.reading = Reading()

    def take(self, key: str, value: Any, written: str) -> None:
        """Check one key and its value, and put it in its place."""
        check = self.vocabulary.get(key)
        if check is None:
            raise SpecError(
                f"{self.label}: unknown key {shown(written)}{_suggestion(key, self.vocabulary)}",
                hint="keys are the flags without --",
            )
        place = self.reading.files if key in FILES else self.reading.values
        if key in place:
            raise SpecError(f"{self.label}: {written}: given twice", hint="keep one of them")
        if value is None:
            return
        checked = self.located(key, check(value, f"{self.label}: {written}"))
        place[key] = Given(checked, f"file:{self.label}:{written}")

    def located(self, key: str, value: Any) -> Any:
        """Resolve a path beside the job file."""
        is_path = key in FILES and key != "hub"
        if (
            self.base is None
            or not isinstance(value, str)
            or not (is_path or value.startswith(("./", "../")))
        ):
            return value
        path = str(self.base / value)
        return path if is_path or "/" in path else f"./{path}"


def _suggestion(key: str, vocabulary: Collection[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(key, [*vocabulary, *SECTIONS, "settings"], n=2, cutoff=0.5)
    return f"; did you mean {' or '.join(repr(name) for name in near)}?" if near else ""


def _settings(value: Any, label: str, reading: Reading) -> None:
    if not isinstance(value, dict):
        raise SpecError(f"{label}: settings: must be a table of framework settings (got {shown(value)})")
    for name, inner in value.items():
        if isinstance(inner, dict):
            for rest, leaf in inner.items():
                _setting(f"{name}.{rest}", leaf, label, reading)
        else:
            _setting(str(name), inner, label, reading)


def _setting(name: str, value: Any, label: str, reading: Reading) -> None:
    checked = _scalar(value, f"{label}: settings.{name}")
    reading.settings[name] = Given(checked, f"file:{label}:settings.{name}")
