"""What was typed and read -> a Job. The one place where flags, files, presets and defaults meet.

Precedence is the caller's: it hands over one value per word, with its origin. Everything is parsed and checked here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from zerocalc.errors import SpecError, UsageError, shown
from zerocalc.jobs.givens import WORDS, Givens, choice
from zerocalc.jobs.machine import resolve_machine
from zerocalc.jobs.model import resolve_models
from zerocalc.jobs.precision import resolve_precision
from zerocalc.jobs.speed import resolve_speed
from zerocalc.rank import check_parallelism
from zerocalc.specs.job import (
    Job,
    ModelSpec,
    Offload,
    Parallelism,
    Workload,
)
from zerocalc.specs.types import MAX_RANKS, Spec
from zerocalc.strategies import read_as, strategy_named

if TYPE_CHECKING:
    from zerocalc.readers.reading import Given


def resolve(
    givens: Mapping[str, Given],
    settings: Mapping[str, Given] | None = None,
    *,
    presets_dir: Path | None = None,
    default_gpus: int | None = None,
) -> Job:
    """Build the job from flat words and framework settings, each with its origin.

    `default_gpus` stands in where the number of ranks is what is asked for. Raises UsageError where words contradict
    each other or one is missing, SpecError for a value out of bounds, UnknownNameError for a name nothing answers to,
    FileError for a file that cannot be read.
    """
    for word in givens:
        assert word in WORDS, word
    g = Givens(givens, presets_dir)
    try:
        return _job(g, settings or {}, default_gpus)
    except ValidationError as error:
        raise _spec_error(error) from error


def _job(g: Givens, settings: Mapping[str, Given], default_gpus: int | None) -> Job:
    model, also = resolve_models(g)
    machine, gpu, node = resolve_machine(g, states_only="micro_batch" not in g)
    precision, optimizer = resolve_precision(g, gpu)
    per_node = node.gpus_per_node if node else None
    parallelism = _parallelism(g, per_node, default_gpus)
    strategy = _strategy(g)
    for path, word in _PLAIN_ORIGINS.items():
        g.note(path, word)
    for name, given in settings.items():
        g.origins[f"settings.{name}"] = given.origin
    return Job(
        model=model,
        also=also,
        precision=precision,
        optimizer=optimizer,
        parallelism=parallelism,
        strategy=strategy,
        framework=(g.text("framework", "paper") or "paper").lower(),
        settings={name: given.value for name, given in settings.items()},
        offload=Offload(optimizer=_tier(g, "offload_optimizer"), params=_tier(g, "offload_params")),
        workload=_workload(g, model),
        machine=machine,
        speed=resolve_speed(g, gpu, node),
        origins=g.origins,
        assumptions=tuple(dict.fromkeys(g.assumptions)),
        warnings=tuple(dict.fromkeys(g.warnings)),
    )


FROZEN_ACTIVATIONS = (
    "activations are those of training every parameter: a frozen layer without an adapter need not save its input, and "
    "what adapters add (tokens times rank) is not counted"
)
_PLAIN_ORIGINS = {
    **{word: word for word in ("tp", "pp", "cp", "ep", "etp", "strategy", "framework")},
    **{
        word: word for word in ("offload_optimizer", "offload_params", "micro_batch", "seq_len", "grad_accum")
    },
    **{word: word for word in ("checkpointing", "attention", "sequence_parallel")},
    "sharding_group_size": "shard_size",
}


def _strategy(g: Givens) -> str:
    typed = g.text("strategy", "zero3") or "zero3"
    if said := read_as(typed):
        g.assumptions.append(said)
    return strategy_named(typed).name


def _tier(g: Givens, word: str) -> Any:
    return choice(g, word, ("none", "cpu", "nvme"), "none")


def _parallelism(g: Givens, per_node: int | None, default_gpus: int | None) -> Parallelism:
    degrees = {word: g.count(word, 1, maximum=MAX_RANKS) for word in ("tp", "pp", "cp", "ep", "etp")}
    around = degrees["tp"] * degrees["pp"] * degrees["cp"]
    world, dp = (g.count(word, maximum=MAX_RANKS) for word in ("gpus", "dp"))
    if world is not None and dp is not None and world != dp * around:
        raise UsageError(
            f"{g.where('gpus')} {world} and {g.where('dp')} {dp} contradict: dp·tp·pp·cp = {dp * around}",
            hint="give one of them, or make them agree",
        )
    if world is None:
        if dp is None and default_gpus is None:
            raise UsageError(
                "how many GPUs?", hint="give -n/--gpus (all of them) or --dp (the data-parallel degree)"
            )
        world = (dp or default_gpus or 1) * around
    g.note("world_size", "gpus" if "gpus" in g else "dp")
    given_per_node = g.count("gpus_per_node", maximum=MAX_RANKS)
    if given_per_node is not None or "gpus_per_node" not in g.origins:
        g.note("gpus_per_node", "gpus_per_node")
    parallelism = Parallelism(
        world_size=world,
        **degrees,
        gpus_per_node=given_per_node or per_node,
        sharding_group_size=g.count("shard_size", maximum=MAX_RANKS),
    )
    check_parallelism(parallelism)
    return parallelism


def _workload(g: Givens, model: ModelSpec) -> Workload:
    work = Workload(
        micro_batch=g.count("micro_batch", maximum=10**9),
        seq_len=g.count("seq_len", maximum=10**9),
        grad_accum=g.count("grad_accum", 1, maximum=10**7),
        checkpointing=choice(g, "checkpointing", ("none", "selective", "full"), "none"),
        attention=choice(g, "attention", ("flash", "math", "eager"), "flash", {"sdpa": "flash"}),
        sequence_parallel=str(g.raw("sequence_parallel") or "").lower() in {"true", "1", "yes"},
    )
    if (work.micro_batch is None) != (work.seq_len is None):
        missing = "seq_len" if work.seq_len is None else "micro_batch"
        g.warnings.append(
            f"activations need both --micro-batch and --seq-len; --{missing.replace('_', '-')} is missing"
        )
    elif work.micro_batch is not None and (
        model.architecture is None or model.architecture.dimensions is None
    ):
        g.warnings.append(
            "activations need the model's shape, not just a count: name a preset, give a config.json, or LxHxA"
        )
    elif work.micro_batch is not None and model.partly_frozen:
        g.assumptions.append(FROZEN_ACTIVATIONS)
    return work


def _spec_error(error: ValidationError) -> SpecError:
    """The first of pydantic's complaints, in the words of this tool."""
    first = error.errors(include_url=False)[0]
    path = ".".join(str(part) for part in first["loc"])
    got = "" if isinstance(first.get("input"), (dict, Spec)) else f" (got {shown(first.get('input'))})"
    return SpecError(f"{path}: {first['msg'][:1].lower()}{first['msg'][1:]}{got}")
