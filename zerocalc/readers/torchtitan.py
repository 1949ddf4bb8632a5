"""torchtitan's job file: sections old and new, and the degrees that make up the mesh."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from zerocalc.readers.convert import AUTO
from zerocalc.readers.fsdp import set_offload
from zerocalc.readers.keys import Found, check_kind, scan
from zerocalc.readers.names import PRECISION_OF, set_optimizer
from zerocalc.readers.reading import Given, Reading
from zerocalc.readers.text import read_mapping
from zerocalc.readers.torchtitan_batches import read_batches, read_pipeline
from zerocalc.readers.torchtitan_keys import KEYS, MODELS, A, P, T

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_DEGREES = {
    "tp": "tensor_parallel_degree",
    "pp": "pipeline_parallel_degree",
    "cp": "context_parallel_degree",
    "ep": "expert_parallel_degree",
    "etp": "expert_tensor_parallel_degree",
}
_RESHARD = {"always": True, "true": True, "never": False, "false": False}
_VARIANT = re.compile(r"[_-](flex|varlen|sdpa|flex_attn|varlen_attn|flex_attention|deepep|lora)$")


def read_torchtitan(path: str | Path, *, gpus: int | None = None) -> Reading:
    """Read a torchtitan job file; `gpus`, where known, resolves the degree -1 and the accumulation.

    Raises FileError when the file cannot be read, SpecError for values that its keys cannot have.
    """
    data = read_mapping(path, default="toml")
    check_kind(data, str(path), "torchtitan job file", KEYS)
    return torchtitan_reading(data, str(path), gpus=gpus)


def torchtitan_reading(data: Mapping[str, Any], label: str, *, gpus: int | None = None) -> Reading:
    """The reading of a job file that is already a mapping."""
    reading = Reading()
    found = scan(data, KEYS, label, reading)
    reading.values["framework"] = Given("pytorch", f"file:{label}")
    for name, key in _DEGREES.items():
        given = found.get(f"{P}.{key}")
        if given is not None and given.value != AUTO and given.value > 0:
            reading.values[name] = given
    _mesh(found, label, reading, gpus)
    sharded = _strategy(found, label, reading)
    _precision(found, label, reading, sharded=sharded)
    read_batches(found, label, reading)
    read_pipeline(found, label, reading, sharded=sharded)
    for step in (_checkpointing, _optimizer, _float8, _model):
        step(found, label, reading)
    return reading


def _degree(found: Found, name: str, default: int) -> int:
    given = found.get(f"{P}.{name}")
    return default if given is None or given.value == AUTO else int(given.value)


def _mesh(found: Found, label: str, reading: Reading, gpus: int | None) -> None:
    """World size and data-parallel size from the degrees; -1 stands for the ranks that are left."""
    shard, replicas = (
        _degree(found, "data_parallel_shard_degree", -1),
        _degree(found, "data_parallel_replicate_degree", 1),
    )
    others = replicas * reading.value("tp", 1) * reading.value("pp", 1) * reading.value("cp", 1)
    given = found.get(f"{P}.data_parallel_shard_degree")
    origin = given.origin if given else f"default:torchtitan data_parallel_shard_degree (not in {label})"
    if shard > 0 and replicas > 0:
        reading.values["gpus"] = Given(shard * others, origin)
        if gpus is not None and gpus != shard * others:
            reading.warnings.append(f"{label}: its degrees need {shard * others} GPUs, not {gpus}")
    elif gpus is not None and replicas > 0:
        if gpus % others:
            reading.warnings.append(
                f"{label}: {gpus} GPUs are not a multiple of its other degrees ({others})"
            )
            return
        shard = gpus // others
    if shard > 0 and replicas > 0:
        reading.values["dp"] = Given(shard * replicas, origin)
    if replicas != 1:
        replicate = found[f"{P}.data_parallel_replicate_degree"]
        reading.totals["replicas"] = replicate
        if shard > 1:
            reading.values["shard_size"] = Given(shard * reading.value("cp", 1), origin)
        elif shard < 0:
            reading.assumptions.append(
                f"{label}: the sharding group is the GPUs / {others} left by the other degrees; "
                "say the GPUs, or --shard-size"
            )


def _strategy(found: Found, label: str, reading: Reading) -> bool:
    """DDP, FSDP or HSDP by the degrees; whether anything is sharded."""
    shard, replicas = (
        _degree(found, "data_parallel_shard_degree", -1),
        _degree(found, "data_parallel_replicate_degree", 1),
    )
    degree = found.get(f"{P}.data_parallel_shard_degree") or found.get(f"{P}.data_parallel_replicate_degree")
    origin = degree.origin if degree else f"default:torchtitan (no data_parallel degree in {label})"
    kind = found.get(f"{P}.data_parallel_type")
    if kind is not None and kind.value.lower() == "ddp":
        reading.values["strategy"] = Given("ddp", kind.origin)
        return False
    if shard == 1 and reading.value("cp", 1) == 1:
        reading.values["strategy"] = Given("ddp", origin)
        if (offload := found.get(f"{T}.enable_cpu_offload")) is not None and offload.value is True:
            reading.warnings.append(f"{label}: {T}.enable_cpu_offload has no effect without FSDP")
        return False
    policy = found.get(f"{P}.fsdp_reshard_after_forward")
    word = "default" if policy is None else policy.value.lower()
    if word not in (*_RESHARD, "default"):
        reading.warnings.append(f"{label}: fsdp_reshard_after_forward {word!r} is not known; read as default")
    reshard = _RESHARD.get(word, reading.value("pp", 1) == 1)
    where = policy.origin if policy else f"default:torchtitan fsdp_reshard_after_forward (not in {label})"
    reading.settings["wrap"] = Given("torchtitan", f"file:{label}")
    name = "hsdp" if replicas != 1 and shard != 1 else "zero3" if reshard else "zero2"
    replicate = found.get(f"{P}.data_parallel_replicate_degree")
    chosen = {"hsdp": replicate.origin if replicate else origin, "zero2": where}
    reading.values["strategy"] = Given(name, chosen.get(name, origin))
    if name != "zero2" and (word in _RESHARD or not reshard):
        reading.settings["reshard_after_forward"] = Given(reshard, where)
    offload = found.get(f"{T}.enable_cpu_offload")
    if offload is not None and offload.value != AUTO:
        set_offload(offload, reading)
    return True


def _precision(found: Found, label: str, reading: Reading, *, sharded: bool) -> None:
    """Storage by `dtype`, compute by `mixed_precision_param`: a policy under FSDP, autocast under plain DDP."""

    def dtype(name: str, default: str) -> Given:
        given = found.get(f"{T}.{name}")
        known = given is not None and given.value not in (AUTO, "none")
        return given if known and given else Given(default, f"default:torchtitan {T}.{name} (not in {label})")

    storage, compute = dtype("dtype", "fp32"), dtype("mixed_precision_param", "bf16")
    mesh = reading.value("tp", 1) > 1 or reading.value("pp", 1) > 1
    if storage.value == "bf16":
        reading.values["precision"] = Given(PRECISION_OF["pure-bf16"], storage.origin)
    elif compute.value == "fp32" or (mesh and not sharded):
        reading.values["precision"] = Given(PRECISION_OF["fp32"], compute.origin)
        if compute.value != "fp32":
            reading.assumptions.append(
                f"{label}: torchtitan has no mixed precision with TP or PP alone: fp32"
            )
    else:
        word = compute.value if sharded else "autocast"
        reading.values["precision"] = Given(PRECISION_OF[word], compute.origin)
        if not sharded:
            reading.settings["autocast"] = Given(True, compute.origin)
    if sharded:
        reduce = dtype("mixed_precision_reduce", "fp32")
        reading.values["reduce_dtype"] = reading.settings["reduce_dtype"] = reduce
        reading.settings["param_dtype"] = compute


def _checkpointing(found: Found, label: str, reading: Reading) -> None:
    """The mode, and of the selective one which operations or layers are computed again; torchtitan's default is every second layer."""
    mode, option = found.get(f"{A}.mode"), found.get(f"{A}.selective_ac_option")
    old = found.get("activation_checkpointing.enable_ac")
    if old is not None and mode is None:
        if old.value is True:
            reading.values["checkpointing"] = Given("selective", old.origin)
        return
    mode = mode or Given("selective", f"default:torchtitan {A}.mode (not in {label})")
    word = mode.value.lower()
    if word not in ("none", "selective", "full"):
        reading.warnings.append(f"{label}: {A}.mode {word!r} is not modelled; say --checkpointing")
        return
    reading.values["checkpointing"] = Given(word, mode.origin)
    if word != "selective":
        return
    option = option or Given("2", f"default:torchtitan {A}.selective_ac_option (not in {label})")
    if option.value.isdigit() and int(option.value) > 0:
        reading.settings["selective_policy"] = Given("layers", option.origin)
        reading.settings["selective_every"] = Given(int(option.value), option.origin)
    elif option.value.lower() == "op":
        reading.settings["selective_policy"] = Given("matmuls", option.origin)
    else:
        reading.warnings.append(f"{label}: selective_ac_option {option.value!r} is not known; read as op")
        reading.settings["selective_policy"] = Given("matmuls", option.origin)


def _optimizer(found: Found, label: str, reading: Reading) -> None:
    kind, how = found.get("optimizer.name"), found.get("optimizer.implementation")
    fused = found.get("optimizer.fused")
    if how is None and fused is not None and fused.value is True:
        how = Given("fused", fused.origin)
    if how is not None and how.value != AUTO:
        for name in ("fused", "foreach"):
            reading.settings[name] = Given(how.value.lower() == name, how.origin)
    if kind is None:
        return
    set_optimizer(kind, "optimizer.name", label, reading)


def _float8(found: Found, label: str, reading: Reading) -> None:
    converters = found.get("model.converters")
    names = [] if converters is None or converters.value == AUTO else converters.value
    gathers = [
        path for path in found if path.endswith("enable_fsdp_float8_all_gather") and found[path].value is True
    ]
    old = found.get(f"{T}.enable_float8_linear")
    on = any("float8" in name or "fp8" in name or "mx" in name for name in names) or (
        old is not None and bool(old.value)
    )
    if on and gathers:
        reading.warnings.append(
            f"{label}: {gathers[0]} moves bytes but is not modelled (parameters are gathered in 8 bits)"
        )
    elif gathers:
        reading.warnings.append(f"{label}: {gathers[0]} has no effect: model.converters names no float8")
    if on:
        reading.assumptions.append(
            f"{label}: matrix products in 8 bits keep weights, gradients and states as they are"
        )
    if "lora" in names and "lora_rank" not in reading.values:
        reading.warnings.append(f"{label}: model.converters names lora, without a rank; say --lora-rank")
    elif (
        "lora_rank" in reading.values
        and "peft" not in reading.values["lora_rank"].origin
        and "lora" not in names
    ):
        reading.warnings.append(f"{label}: lora.rank has no effect: model.converters does not name lora")
        del reading.values["lora_rank"]


def _model(found: Found, label: str, reading: Reading) -> None:
    name, flavor, hub = found.get("model.name"), found.get("model.flavor"), found.get("hf_transformers.model")
    if hub is not None:
        reading.values["model"] = hub
        return
    if name is None:
        return
    word = "" if flavor is None else flavor.value.lower()
    while _VARIANT.search(word):
        word = _VARIANT.sub("", word)
    preset = MODELS.get(name.value.lower(), {}).get(word)
    if preset is not None:
        reading.values["model"] = Given(preset, flavor.origin if flavor else name.origin)
    elif "/" in name.value:
        reading.values["model"] = name
    else:
        shape = f"{name.value} {flavor.value}" if flavor else name.value
        reading.warnings.append(f"{label}: model {shape} is not known by its shape; name the MODEL to size")
