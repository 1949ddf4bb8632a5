"""What every writer needs: the fragment, what it leaves unsaid, the settings that were given, the refusal."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zerocalc.errors import UsageError
from zerocalc.frameworks import framework_named
from zerocalc.frameworks.settings import resolve_settings
from zerocalc.records import Record

if TYPE_CHECKING:
    from zerocalc.specs.job import Job


@dataclass(eq=False, repr=False)
class Fragment(Record):
    """A fragment of a tool's file, and the words of the job that it does not hold."""

    text: str
    unsaid: Mapping[str, Any]
    """By the job's words, settings as `settings.<name>`: with these beside it the file is the same job."""
    notes: tuple[str, ...] = ()
    """What to know before using it."""


WORDS: tuple[tuple[str, Callable[[Job], Any], Callable[[Job], Any]], ...] = (
    ("gpus", lambda job: job.parallelism.world_size, lambda _: None),
    ("gpus_per_node", lambda job: job.parallelism.gpus_per_node, lambda _: None),
    ("optimizer", lambda job: job.optimizer.name, lambda _: "adamw"),
    ("grad_dtype", lambda job: job.precision.grad_dtype, lambda job: job.precision.param_dtype),
    ("frozen_dtype", lambda job: job.precision.frozen_dtype, lambda job: job.precision.param_dtype),
    ("micro_batch", lambda job: job.workload.micro_batch, lambda _: None),
    ("seq_len", lambda job: job.workload.seq_len, lambda _: None),
    ("grad_accum", lambda job: job.workload.grad_accum, lambda _: 1),
    ("checkpointing", lambda job: job.workload.checkpointing, lambda _: "none"),
    ("attention", lambda job: job.workload.attention, lambda _: "flash"),
    ("sequence_parallel", lambda job: job.workload.sequence_parallel, lambda _: False),
)
"""Words that a file may leave to the training script or the launcher: value, and the value that needs no saying."""


def unsaid_of(job: Job, said: Collection[str]) -> dict[str, Any]:
    """What of the job is in none of the `said` words and settings, and is not the default."""
    words = {name: value(job) for name, value, default in WORDS if value(job) != default(job)}
    words |= {f"settings.{name}": value for name, value in given_settings(job).items()}
    return {word: value for word, value in words.items() if word not in said}


def given_settings(job: Job) -> dict[str, Any]:
    """The framework's settings that were given and are not at their defaults, as their own types."""
    rows = framework_named(job.framework).SETTINGS
    values, _ = resolve_settings(job.framework, rows, job.settings, job.strategy)
    defaults = {row.name: row.default for row in rows}
    return {name: values[name] for name in job.settings if values[name] != defaults[name]}


def flags(unsaid: Mapping[str, Any]) -> str:
    """Unsaid words as the flags that say them."""
    parts = []
    for word, value in unsaid.items():
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        if word.startswith("settings."):
            parts.append(f"--set {word.removeprefix('settings.')}={shown}")
        else:
            flag = f"--{word.replace('_', '-')}"
            parts.append(flag if value is True else f"{flag} {shown}")
    return " ".join(parts)


def heading(job: Job, unsaid: Mapping[str, Any], notes: Collection[str] = ()) -> list[str]:
    """Comment lines in ASCII: what the fragment realises, what it leaves to others, what to know."""
    name = " ".join(str(job.model.name or "").split()) or f"{job.model.num_params:,} parameters"
    lines = [f"{name}: {job.strategy} on {job.parallelism.world_size} GPUs, framework {job.framework}"]
    if unsaid:
        lines.append(f"not said here: {flags(unsaid)}")
    return [line.encode("ascii", "backslashreplace").decode() for line in (*lines, *notes)]


def refused(tool: str, reason: str, *, can: str) -> UsageError:
    """The error for what a tool cannot express; `can` says which tool can, or what to change."""
    return UsageError(f"{tool} cannot express this: {reason}", hint=can)


def refuse_degrees(job: Job, tool: str, *, can: str, allowed: Collection[str] = ()) -> None:
    """Raise UsageError for a degree of parallelism that the tool's file does not have."""
    for word in ("tp", "pp", "cp", "ep", "etp"):
        degree = getattr(job.parallelism, word)
        if degree > 1 and word not in allowed:
            raise refused(tool, f"it has no key for {word} (here {degree})", can=can)


def refuse_extra_copies(job: Job, tool: str) -> None:
    """Raise UsageError for a precision with copies or states that no tool's file asks for."""
    states = getattr(job.optimizer.precision_row, "extra_states", ())
    if job.precision.extra_param_bytes or states:
        raise refused(
            tool,
            f"precision {job.precision.name} keeps further copies that its file does not ask for",
            can="give --precision mixed-bf16, mixed-fp16, fp32 or bf16-pure",
        )


def replicas_of(job: Job, tool: str) -> int:
    """Copies of the sharded model under hsdp, 1 otherwise. Raises UsageError for groups that are no groups."""
    if job.strategy != "hsdp":
        return 1
    group, ranks = group_size(job), job.parallelism.shard_size
    if group % job.parallelism.cp or not job.parallelism.cp < group < ranks:
        raise refused(
            tool,
            f"hsdp in groups of {group} among {ranks} ranks: one group is zero3, groups of one rank are ddp",
            can="give another --shard-size, or that --strategy",
        )
    return ranks // group


def group_size(job: Job) -> int:
    """Ranks of one sharding group of hsdp and mics, as the estimate counts them."""
    from zerocalc.rank import sharding_group
    from zerocalc.strategies import strategy_named

    return int(sharding_group(strategy_named(job.strategy), job.parallelism, "dense")[0])
