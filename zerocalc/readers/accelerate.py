"""Accelerate's launch configuration: which plug-in is on, over how many processes, and what its section says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocalc.errors import SpecError, shown
from zerocalc.readers.accelerate_keys import DEEPSPEED, FSDP, KEYS, MEGATRON, PARALLEL
from zerocalc.readers.convert import AUTO
from zerocalc.readers.deepspeed import STRATEGIES, deepspeed_reading
from zerocalc.readers.fsdp import apply_fsdp, set_hybrid_group
from zerocalc.readers.keys import Found, check_kind, scan
from zerocalc.readers.launch import read_beside, set_accumulation, set_precision
from zerocalc.readers.reading import Given, Reading
from zerocalc.readers.text import read_mapping

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_OWN_KEYS = frozenset(
    {"distributed_type", "compute_environment", "num_processes", "num_machines", MEGATRON, PARALLEL}
)
_PLUGINS = {"FSDP": FSDP, "DEEPSPEED": DEEPSPEED, "MEGATRON_LM": MEGATRON}
_SINGLE = ("no", "false", "none")


def read_accelerate(path: str | Path, *, dp: int | None = None) -> Reading:
    """Read an Accelerate file (YAML or JSON), or a trainer's: axolotl, the Hugging Face Trainer, LLaMA-Factory.

    Raises FileError when the file cannot be read, SpecError for values that its keys cannot have.
    """
    twice: list[str] = []
    data = unwrapped(read_mapping(path, default="yaml", twice=twice))
    if _OWN_KEYS.isdisjoint(data):
        from zerocalc.readers.trainer import trainer_reading
        from zerocalc.readers.trainer_keys import KEYS as TRAINER_KEYS

        check_kind(data, str(path), "file of Accelerate or of a trainer", KEYS, TRAINER_KEYS, telling=True)
        reading = trainer_reading(data, str(path), dp=dp)
    else:
        reading = accelerate_reading(data, str(path), dp=dp)
    reading.warnings += [
        f"{path}: key {shown(key)} appears twice; the last counts, as PyYAML reads it"
        for key in dict.fromkeys(twice)
    ]
    return reading


def unwrapped(data: dict[str, Any]) -> dict[str, Any]:
    """A configuration as Weights & Biases stores it, `{value: …}` around each key, without the wrapping."""
    entries = [value for name, value in data.items() if not str(name).startswith(("wandb", "_wandb"))]
    if not entries or not all(isinstance(entry, dict) and "value" in entry for entry in entries):
        return data
    return {
        name: value["value"] for name, value in data.items() if isinstance(value, dict) and "value" in value
    }


def accelerate_reading(data: Mapping[str, Any], label: str, *, dp: int | None = None) -> Reading:
    """The reading of an Accelerate configuration that is already a mapping."""
    reading = Reading()
    data = {**data}
    inline = data.get(DEEPSPEED)
    if isinstance(inline, str):
        data[DEEPSPEED] = {"deepspeed_config_file": inline}
    whole = isinstance(inline, dict) and "zero_optimization" in inline
    if whole:
        del data[DEEPSPEED]
    found = scan(data, KEYS, label, reading)
    kind = _distributed_type(found, label, reading)
    _processes(found, kind, label, reading)
    _idle_sections(found, kind, label, reading)
    if kind == "DEEPSPEED":
        if whole and isinstance(inline, dict):
            ranks = _ranks_outside_groups(found, reading)
            reading.absorb(deepspeed_reading(inline, f"{label}:{DEEPSPEED}", dp=dp, gpus=ranks))
        else:
            _deepspeed(found, label, reading, dp)
    elif kind == "FSDP":
        apply_fsdp(found, FSDP, label, reading)
    elif kind == "MEGATRON_LM":
        _megatron(found, label, reading)
    else:
        reading.values["framework"] = Given("pytorch", f"file:{label}")
        reading.values["strategy"] = Given("ddp", _origin(found, "distributed_type", label))
    _groups(found, kind, label, reading)
    set_precision(found.get("mixed_precision") or _old_fp16(found), kind, label, reading)
    set_hybrid_group(label, reading)
    set_accumulation(kind, reading)
    return reading


def _origin(found: Found, key: str, label: str) -> str:
    return found[key].origin if key in found else f"default:accelerate {key} (not in {label})"


def _distributed_type(found: Found, label: str, reading: Reading) -> str:
    given = found.get("distributed_type")
    if given is not None and given.value.lower() not in (AUTO, "null"):
        name = str(given.value).strip().rpartition(".")[2].upper()
        return "NO" if name.lower() in _SINGLE else name
    plugin = next((kind for kind, section in _PLUGINS.items() if _has(found, section)), None)
    processes = found.get("num_processes")
    several = processes is not None and processes.value != AUTO and processes.value > 1
    kind = plugin or ("MULTI_GPU" if several else "NO")
    reading.assumptions.append(f"{label}: no distributed_type; read as {kind}")
    return kind


def _has(found: Found, section: str) -> bool:
    return any(path.startswith(f"{section}.") for path in found)


def _processes(found: Found, kind: str, label: str, reading: Reading) -> None:
    processes, machines = found.get("num_processes"), found.get("num_machines")
    if kind == "NO":
        if processes is not None and processes.value not in (1, AUTO):
            reading.warnings.append(
                f"{label}: num_processes {processes.value} has no effect under distributed_type NO"
            )
        reading.values["gpus"] = Given(1, _origin(found, "distributed_type", label))
        return
    if kind == "MULTI_CPU" or (found.get("use_cpu") and found["use_cpu"].value is True):
        reading.warnings.append(f"{label}: trains on CPUs; each process is counted as one GPU")
    elif kind in ("TPU", "XLA"):
        reading.warnings.append(
            f"{label}: {kind} devices are not modelled; each process is counted as one GPU"
        )
    if processes is None or processes.value == AUTO:
        return
    reading.values["gpus"] = processes
    if machines is None or machines.value == AUTO:
        return
    if processes.value % machines.value:
        reading.warnings.append(
            f"{label}: num_processes {processes.value} is not a multiple of num_machines {machines.value}; "
            "GPUs per node not read"
        )
    else:
        origin = f"{processes.origin} / {machines.origin.rpartition(':')[2]}"
        reading.values["gpus_per_node"] = Given(processes.value // machines.value, origin)


def _idle_sections(found: Found, kind: str, label: str, reading: Reading) -> None:
    for owner, section in _PLUGINS.items():
        if kind != owner and _has(found, section):
            reading.warnings.append(f"{label}: {section} has no effect under distributed_type {kind}")
            if owner == "MEGATRON_LM":
                for name in ("tp", "pp", "cp", "ep", "etp"):
                    given = reading.values.get(name)
                    if given is not None and section in given.origin:
                        del reading.values[name]
                reading.settings.clear()


def _deepspeed(found: Found, label: str, reading: Reading, dp: int | None) -> None:
    """DeepSpeed by its own file where one is named, which then decides, or by the few keys given inline."""
    reading.values["framework"] = Given("deepspeed", f"file:{label}")
    named = found.get(f"{DEEPSPEED}.deepspeed_config_file")
    if named is not None and named.value.lower() not in ("none", "null", ""):
        ranks = _ranks_outside_groups(found, reading)
        inner = read_beside(named.value, label, reading, dp=dp, gpus=ranks)
        if inner is not None:
            precision = inner.values.get("precision")
            if (
                precision is not None
                and precision.origin.startswith("default:")
                and "mixed_precision" in found
            ):
                del inner.values["precision"]
            reading.absorb(inner)
        _inline(found, label, reading, fill=inner is not None)
        return
    _inline(found, label, reading, fill=False)
    if "strategy" not in reading.values:
        reading.values["strategy"] = Given("zero2", f"default:accelerate zero_stage (not in {label})")


_INLINE = {
    "zero_stage": "strategy",
    "gradient_accumulation_steps": "grad_accum",
    "train_micro_batch_size_per_gpu": "micro_batch",
    "offload_optimizer_device": "offload_optimizer",
    "offload_param_device": "offload_params",
}


def _inline(found: Found, label: str, reading: Reading, *, fill: bool) -> None:
    """Take the inline keys; with `fill`, only what DeepSpeed's own file leaves open."""
    for key, name in _INLINE.items():
        given = found.get(f"{DEEPSPEED}.{key}")
        if given is None or given.value == AUTO:
            continue
        if key == "zero_stage":
            if given.value >= len(STRATEGIES):
                raise SpecError(
                    f"{label}: {DEEPSPEED}.zero_stage: must be 0, 1, 2 or 3 (got {shown(given.value)})"
                )
            given = Given(STRATEGIES[given.value], given.origin)
        before = reading.values.get(name) if fill else None
        if before is None:
            reading.values[name] = given
        elif before.value != given.value:
            reading.warnings.append(
                f"{label}: {DEEPSPEED}.{key} has no effect beside deepspeed_config_file, which says otherwise"
            )
    stage = reading.value("strategy")
    needs = {"offload_optimizer": ("zero1", "zero2", "zero3"), "offload_params": ("zero3",)}
    for name, strategies in needs.items():
        device = reading.values.get(name)
        if stage in STRATEGIES and device and device.value != "none" and stage not in strategies:
            reading.warnings.append(
                f"{label}: {device.origin.rpartition(':')[2]} has no effect under {stage}"
            )
            reading.values[name] = Given("none", device.origin)


def _megatron(found: Found, label: str, reading: Reading) -> None:
    reading.values["framework"] = Given("megatron", f"file:{label}")
    distributed = found.get(f"{MEGATRON}.use_distributed_optimizer")
    on = distributed is not None and distributed.value is True
    origin = distributed.origin if distributed else f"default:use_distributed_optimizer (not in {label})"
    reading.values["strategy"] = Given("zero1" if on else "ddp", origin)
    granularity = found.get(f"{MEGATRON}.recompute_granularity")
    recompute = found.get(f"{MEGATRON}.recompute_activations")
    if granularity is not None and granularity.value.lower() in ("full", "selective"):
        reading.values["checkpointing"] = Given(granularity.value.lower(), granularity.origin)
    elif recompute is not None and recompute.value != AUTO:
        reading.values["checkpointing"] = Given("selective" if recompute.value else "none", recompute.origin)


def _size(found: Found, name: str) -> int:
    given = found.get(f"{PARALLEL}.{name}")
    return 1 if given is None or given.value == AUTO else int(given.value)


def _ranks_outside_groups(found: Found, reading: Reading) -> int | None:
    """Processes over tensor, context and sequence parallelism: what DeepSpeed's own file sees as its world."""
    gpus = reading.value("gpus")
    around = _size(found, "tp_size") * _size(found, "cp_size") * _size(found, "sp_size")
    return None if gpus is None or gpus % around else gpus // around


def _groups(found: Found, kind: str, label: str, reading: Reading) -> None:
    """The sizes of `parallelism_config`: replicas around a sharding group, context and sequence parallelism."""
    if not _has(found, PARALLEL):
        return
    for name in ("cp_size", "sp_size"):
        if _size(found, name) > 1:
            reading.values["cp"] = found[f"{PARALLEL}.{name}"]
    shard, replicas = _size(found, "dp_shard_size"), _size(found, "dp_replicate_size")
    if shard > 1 and replicas > 1 and kind == "FSDP":
        given = found[f"{PARALLEL}.dp_shard_size"]
        if reading.value("strategy") == "zero2":
            reading.settings["reshard_after_forward"] = Given(False, reading.values["strategy"].origin)
        reading.values["strategy"] = Given("hsdp", found[f"{PARALLEL}.dp_replicate_size"].origin)
        reading.values["shard_size"] = Given(shard * reading.value("cp", 1), given.origin)
    product = shard * replicas * _size(found, "tp_size") * reading.value("cp", 1)
    gpus = reading.value("gpus")
    if gpus is not None and product > 1 and gpus % product:
        reading.warnings.append(
            f"{label}: num_processes {gpus} is not a multiple of {PARALLEL}'s sizes ({product})"
        )


def _old_fp16(found: Found) -> Given | None:
    given = found.get("fp16")
    return Given("fp16", given.origin) if given is not None and given.value is True else None
