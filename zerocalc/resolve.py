"""What was typed and read -> a Job. The one place where flags, files, presets and defaults meet.

Precedence is the caller's: it hands over one value per word, with its origin. Everything is parsed and checked here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from zerocalc.errors import SpecError, UsageError
from zerocalc.rank import check_parallelism
from zerocalc.readers.reading import Given
from zerocalc.resolve_model import resolve_models
from zerocalc.resolve_speed import SPEED_WORDS, resolve_speed
from zerocalc.specs.job import (
    Job,
    Machine,
    ModelSpec,
    Offload,
    OptimizerSpec,
    Parallelism,
    Precision,
    Workload,
)
from zerocalc.specs.types import MAX_BYTES_PER_PARAM, MAX_RANKS, Spec
from zerocalc.strategies import read_as, strategy_named
from zerocalc.units import BYTE_UNITS, ceil, dtype_bytes, parse_count, parse_dtype, parse_ratio, parse_size

if TYPE_CHECKING:
    from zerocalc.presets import Gpu, Node

WORDS = frozenset(SPEED_WORDS) | frozenset(
    "model gpus dp tp pp cp ep etp gpus_per_node shard_size gpu node host_memory nvme_memory reserve precision "
    "optimizer k param_dtype grad_dtype reduce_dtype trainable frozen_dtype lora_rank lora_targets also "
    "offload_optimizer offload_params micro_batch seq_len grad_accum checkpointing attention sequence_parallel "
    "expert_params strategy framework mfu tokens".split()
)
"""Every word a job can be told by; flags have hyphens for underscores."""


class Givens:
    """The given words, what has been assumed on the way, and where each resolved value came from."""

    def __init__(self, given: Mapping[str, Given], presets_dir: Path | None = None) -> None:
        self._given = dict(given)
        self.presets_dir = presets_dir
        self.origins: dict[str, str] = {}
        self.assumptions: list[str] = []
        self.warnings: list[str] = []

    def __contains__(self, word: str) -> bool:
        return self._given.get(word) is not None and self._given[word].value is not None

    def raw(self, word: str) -> Any:
        """The value as given, or None."""
        return self._given[word].value if word in self else None

    def origin(self, word: str, *, default: str = "default") -> str:
        """Where the word's value came from."""
        return self._given[word].origin if word in self else default

    def where(self, word: str) -> str:
        """How to point the user at a word: the flag, or the file and key."""
        origin = self.origin(word, default="flag")
        return (
            f"--{word.replace('_', '-')}" if origin in {"flag", "argument"} else origin.removeprefix("file:")
        )

    def text(self, word: str, default: str | None = None) -> str | None:
        """A word's value as text; empty text is refused."""
        if word not in self:
            return default
        text = str(self.raw(word)).strip()
        if not text:
            raise SpecError(f"{self.where(word)}: is empty")
        return text

    def count(self, word: str, default: Any = None, *, minimum: int = 1, maximum: int = 10**15) -> Any:
        """A whole number."""
        if word not in self:
            return default
        value = self.raw(word)
        if isinstance(value, bool):
            raise SpecError(f"{self.where(word)}: must be a whole number (got {str(value).lower()})")
        return parse_count(str(value), name=self.where(word), minimum=minimum, maximum=maximum)

    def note(self, path: str, word: str, *, default: str = "default") -> None:
        """Record a resolved value's origin."""
        self.origins[path] = self.origin(word, default=default)


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
    machine, gpu, node = _machine(g, states_only="micro_batch" not in g)
    precision, optimizer = _precision_and_optimizer(g, gpu)
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
    return _choice(g, word, ("none", "cpu", "nvme"), "none")


def _choice(
    g: Givens, word: str, allowed: tuple[str, ...], default: str, aliases: Mapping[str, str] | None = None
) -> Any:
    text = (g.text(word, default) or default).lower()
    text = (aliases or {}).get(text, text)
    if text not in allowed:
        raise SpecError(f"{g.where(word)}: must be one of {', '.join(allowed)} (got {g.raw(word)!r})")
    return text


def _precision_and_optimizer(g: Givens, gpu: Gpu | None) -> tuple[Precision, OptimizerSpec]:
    """Element types and K, from named rows; single types and K override them. Without bf16 the usual type is fp16."""
    from zerocalc.presets import load_optimizer, load_precision, optimizer_bytes_per_param

    without_bf16 = gpu.id if gpu is not None and gpu.half_dtype == "fp16" else None
    usual = "mixed-fp16" if without_bf16 else "mixed-bf16"
    why = f"default: {without_bf16} has no bf16" if without_bf16 else "default"
    row = load_precision(g.text("precision", usual) or "", directory=g.presets_dir)
    optimizer_row = load_optimizer(g.text("optimizer", "adamw") or "", directory=g.presets_dir)
    g.note("precision", "precision", default=why)
    g.note("optimizer", "optimizer")
    own = f"preset:{row.id}"
    dtypes = {"param_dtype": row.param_dtype, "grad_dtype": row.grad_dtype, "reduce_dtype": row.reduce_dtype}
    if "grad_dtype" in g and "reduce_dtype" not in g:
        dtypes["reduce_dtype"] = g.raw("grad_dtype")
    dtypes["frozen_dtype"] = dtypes["param_dtype"] if "param_dtype" not in g else g.raw("param_dtype")
    for word in dtypes:
        g.note(word, word, default=own)
        dtypes[word] = parse_dtype(g.text(word, dtypes[word]) or "", name=g.where(word))
    if without_bf16 and dtypes["param_dtype"] == "bf16":
        g.warnings.append(f"{without_bf16} has no bf16; fp16 takes the same bytes (--precision mixed-fp16)")
    for preset in (row, optimizer_row):
        if preset.assumption:
            g.assumptions.append(preset.assumption)
    precision = Precision(
        name=row.id,
        master_dtype=row.master_dtype,
        moment_dtype=row.moment_dtype,
        extra_param_bytes=sum(dtype_bytes(copy.dtype) for copy in row.weight_copies),
        **dtypes,
    )
    if "k" in g:
        g.note("optimizer_bytes_per_param", "k")
        k = parse_ratio(str(g.raw("k")), name=g.where("k"), maximum=MAX_BYTES_PER_PARAM)
        return precision, OptimizerSpec(name=optimizer_row.id, bytes_per_param=k)
    g.origins["optimizer_bytes_per_param"] = f"preset:{optimizer_row.id} under preset:{row.id}"
    k = optimizer_bytes_per_param(optimizer_row, row)
    return precision, OptimizerSpec(
        name=optimizer_row.id, bytes_per_param=k, row=optimizer_row, precision_row=row
    )


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
        checkpointing=_choice(g, "checkpointing", ("none", "selective", "full"), "none"),
        attention=_choice(g, "attention", ("flash", "math", "eager"), "flash", {"sdpa": "flash"}),
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
    return work


def _machine(g: Givens, *, states_only: bool) -> tuple[Machine, Gpu | None, Node | None]:
    """The machine's sizes, and the presets of the GPU and the node behind them."""
    from zerocalc.presets import load_gpu, load_node

    node = load_node(g.text("node") or "", directory=g.presets_dir) if "node" in g else None
    if node and node.assumption:
        g.assumptions.append(node.assumption)
    gpu_text = g.text("gpu", node.gpu if node else None)
    gpu: Gpu | None = None
    capacity = None
    if gpu_text is not None and _is_size(gpu_text):
        capacity = parse_size(gpu_text, name=g.where("gpu"))
        if capacity == 0:
            raise SpecError(
                f"{g.where('gpu')}: must be above 0 (got {gpu_text})", hint="write it like 80GB or 80GiB"
            )
        g.note("capacity_bytes", "gpu")
    elif gpu_text is not None:
        gpu = _gpu_preset(g, gpu_text, load_gpu)
        capacity = gpu.capacity_bytes
        g.origins["capacity_bytes"] = f"{gpu.origin}: {gpu.capacity_origin}"
        if gpu.assumption:
            g.assumptions.append(gpu.assumption)
        g.assumptions.append(f"capacity of {gpu.id}: {gpu.capacity_origin}")
    if node is not None:
        for path in ("gpus_per_node", "host_memory_bytes", "nvme_memory_bytes"):
            g.origins[path] = node.origin
    sizes = {}
    for word, from_node in (
        ("host_memory", node and node.host_memory_bytes),
        ("nvme_memory", node and node.nvme_bytes),
    ):
        sizes[f"{word}_bytes"] = (
            parse_size(g.text(word) or "", name=g.where(word)) if word in g else from_node
        )
        if word in g:
            g.note(f"{word}_bytes", word)
    g.note("gpu", "gpu", default=node.origin if node else "default")
    g.note("node", "node")
    reserve = _reserve(g, gpu, capacity, states_only=states_only)
    machine = Machine(
        gpu=gpu.id if gpu else gpu_text, node=node.id if node else None,
        capacity_bytes=capacity, reserve_bytes=reserve, **sizes,
    )  # fmt: skip
    return machine, gpu, node


def _gpu_preset(g: Givens, text: str, load_gpu: Any) -> Gpu:
    """A GPU by name; a bare number that names none is refused as a size without its unit."""
    from zerocalc.errors import UnknownNameError

    try:
        gpu: Gpu = load_gpu(text, directory=g.presets_dir)
    except UnknownNameError:
        if text[:1].isdigit() or text[:1] in "-.":
            parse_size(text, name=g.where("gpu"))
        raise
    return gpu


def _is_size(text: str) -> bool:
    """Whether the text is a number with a byte unit, such as `80GB`."""
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = text[len(digits) :].strip().lower()
    return digits[:1].isdigit() and unit in BYTE_UNITS and "-" not in digits.strip("-")


def _reserve(g: Givens, gpu: Gpu | None, capacity: int | None, *, states_only: bool) -> int:
    """What is kept free: a size, a percentage of capacity, or the preset's share once more than states is counted."""
    g.note("reserve_bytes", "reserve")
    text = g.text("reserve")
    if text is None:
        return 0 if states_only or gpu is None else _preset_reserve(g, gpu)
    if not text.endswith("%"):
        size = parse_size(text, name=g.where("reserve"))
    elif capacity is None:
        raise UsageError(f"{g.where('reserve')} {text} is a share of the GPU's memory", hint="give --gpu")
    else:
        percent = parse_ratio(text[:-1], name=g.where("reserve"))
        size = ceil(percent * capacity / 100)
    if capacity is not None and size > capacity:
        raise SpecError(f"{g.where('reserve')}: {text} is more than the GPU's {capacity:,} bytes")
    return int(size)


def _preset_reserve(g: Givens, gpu: Gpu) -> int:
    from zerocalc.presets import load_reserve

    row = load_reserve(gpu.reserve, directory=g.presets_dir)
    g.origins["reserve_bytes"] = f"preset:{gpu.reserve}"
    return row.bytes_of(gpu.capacity_bytes)


def _spec_error(error: ValidationError) -> SpecError:
    """The first of pydantic's complaints, in the words of this tool."""
    first = error.errors(include_url=False)[0]
    path = ".".join(str(part) for part in first["loc"])
    got = "" if isinstance(first.get("input"), (dict, Spec)) else f" (got {first.get('input')!r})"
    return SpecError(f"{path}: {first['msg'][:1].lower()}{first['msg'][1:]}{got}")
