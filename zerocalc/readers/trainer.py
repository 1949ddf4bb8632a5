"""The trainers' own files: axolotl, the Hugging Face Trainer, LLaMA-Factory. They launch FSDP or DeepSpeed by a key."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from zerocalc.readers.convert import AUTO, shown
from zerocalc.readers.deepspeed import deepspeed_reading
from zerocalc.readers.fsdp import SHARDING, apply_fsdp, set_hybrid_group, set_offload
from zerocalc.readers.keys import Found, scan
from zerocalc.readers.launch import read_beside, set_accumulation, set_precision
from zerocalc.readers.names import PRECISION_OF, set_optimizer
from zerocalc.readers.reading import Given, Reading
from zerocalc.readers.trainer_keys import FSDP, KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping

_ATTENTION = {
    "flash_attention": "flash", "flash_attention_2": "flash", "flash_attention_3": "flash", "sdpa": "flash",
    "flash": "flash", "fa2": "flash", "auto": "flash", "xformers": "flash", "flex_attention": "flash",
    "eager": "eager", "disabled": "eager", "sdp_attention": "flash", "xformers_attention": "flash",
    "eager_attention": "eager",
}  # fmt: skip
_LOSSES = {
    "liger_fused_linear_cross_entropy": "fused",
    "enable_liger_kernel": "fused",
    "cut_cross_entropy": "fused",
    "chunked_cross_entropy": "chunked",
}
"""How logits and loss are computed: none of these keeps all logits."""
_ADAPTERS = ("lora", "qlora", "dora", "qalora")
_MODULE = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
ALL_LINEAR = "all-linear"
_OFF = ("false", "none", "no", "off", "", "null")
_UNDECIDED = (AUTO, "true")


def trainer_reading(data: Mapping[str, Any], label: str, *, dp: int | None = None) -> Reading:
    """The reading of a trainer's configuration that is already a mapping."""
    reading = Reading()
    found = scan(data, KEYS, label, reading)
    kind = _strategy(found, label, reading, dp)
    _groups(found, reading)
    _data_parallel(found, kind, reading)
    set_hybrid_group(label, reading)
    _adapter(found, label, reading)
    _precision(found, kind, label, reading)
    _checkpointing(found, label, reading)
    _attention(found, reading)
    _optimizer(found, label, reading)
    _loss(found, reading)
    return reading


def _strategy(found: Found, label: str, reading: Reading, dp: int | None) -> str:
    """Which plug-in the file turns on: DeepSpeed before FSDP, as the Trainer does."""
    deepspeed, fsdp = found.get("deepspeed"), found.get("fsdp")
    if deepspeed is not None and isinstance(deepspeed.value, dict) and deepspeed.value:
        reading.absorb(deepspeed_reading(deepspeed.value, f"{label}:deepspeed", dp=dp))
        return "DEEPSPEED"
    if deepspeed is not None and isinstance(deepspeed.value, str) and deepspeed.value.lower() not in _OFF:
        reading.values["framework"] = Given("deepspeed", deepspeed.origin)
        if "${" in deepspeed.value:
            reading.warnings.append(
                f"{label}: deepspeed is a placeholder ({shown(deepspeed.value)}); give --deepspeed"
            )
        elif (inner := read_beside(deepspeed.value, label, reading, dp=dp)) is not None:
            reading.absorb(inner)
        return "DEEPSPEED"
    words = _fsdp_words(fsdp)
    section = [path for path in found if path.startswith(f"{FSDP}.")]
    if words is None and section and fsdp is None:
        words = []
    if words is None:
        if section:
            reading.warnings.append(f"{label}: {FSDP} has no effect without fsdp")
        reading.values["framework"] = Given("pytorch", f"file:{label}")
        reading.values["strategy"] = Given("ddp", f"default:trainer (no fsdp, no deepspeed in {label})")
        return "MULTI_GPU"
    origin = fsdp.origin if fsdp is not None else f"file:{label}:{FSDP}"
    word = next((Given(name, origin) for name in words if name in SHARDING), None)
    if "offload" in words:
        set_offload(Given(True, origin), reading)
    apply_fsdp(found, FSDP, label, reading, word=word, version=found.get("fsdp_version"))
    return "FSDP"


def _fsdp_words(given: Given | None) -> list[str] | None:
    """The words of `fsdp:` (a list, a string, true), or None when FSDP is off."""
    if given is None or given.value in (False, None, "", []):
        return None
    value = given.value
    if value is True:
        return []
    parts = value if isinstance(value, list) else str(value).replace(",", " ").replace("+", " ").split()
    words = [str(part).strip().lower() for part in parts]
    if words in (["false"], ["none"], ["null"]) or any("${" in word for word in words):
        return None
    return [] if words == ["true"] else words


def _groups(found: Found, reading: Reading) -> None:
    shard, replicas = found.get("dp_shard_size"), found.get("dp_replicate_size")
    if shard is None or AUTO in (shard.value, replicas.value if replicas else None):
        return
    if replicas is not None and replicas.value > 1 and shard.value > 1:
        reading.values["strategy"] = Given("hsdp", replicas.origin)
        reading.values["shard_size"] = Given(shard.value * reading.value("cp", 1), shard.origin)
    if (size := shard.value * (replicas.value if replicas else 1)) > 1:
        reading.values.setdefault("dp", Given(size, shard.origin))


def _data_parallel(found: Found, kind: str, reading: Reading) -> None:
    """The knobs of DistributedDataParallel, and gradient synchronisation under accumulation."""
    if kind == "MULTI_GPU":
        for key, name in (
            ("ddp_bucket_cap_mb", "bucket_cap_mb"),
            ("ddp_find_unused_parameters", "find_unused_parameters"),
        ):
            given = found.get(key)
            if given is not None and given.value != AUTO:
                reading.settings[name] = given
    set_accumulation(kind, reading)


def _precision(found: Found, kind: str, label: str, reading: Reading) -> None:
    """`bf16: auto` is bf16 where the GPU has it; `bfloat16: true` loads everything in bf16."""
    for name, word in (("bfloat16", "pure-bf16"), ("pure_bf16", "pure-bf16"), ("float16", "fp16")):
        given = found.get(name)
        if given is not None and given.value is True:
            reading.values.setdefault("precision", Given(PRECISION_OF[word], given.origin))
            return
    fp8 = found.get("fp8")
    candidates = {name: found.get(name) for name in ("bf16", "fp16")}
    on = [
        (name, given) for name, given in candidates.items() if given and str(given.value).lower() not in _OFF
    ]
    if fp8 is not None and fp8.value is True:
        set_precision(Given("fp8", fp8.origin), kind, label, reading)
    elif on:
        name, given = on[0]
        word = str(given.value).lower()
        if word == "full":
            reading.values["precision"] = Given(PRECISION_OF["pure-bf16"], given.origin)
            return
        if word == AUTO:
            reading.assumptions.append(f"{label}: {name} is auto: the GPU is taken to have it")
        elif word not in _UNDECIDED:
            reading.warnings.append(
                f"{label}: {name} = {shown(given.value)} is neither true, false, auto nor full"
            )
        if "base_model" in found and found["base_model"].origin.endswith(":base_model"):
            adapted = _is_adapted(found)
            _loaded_in_16_bits(
                Given(name, given.origin), label, reading, adapted=adapted, ddp=kind == "MULTI_GPU"
            )
        set_precision(Given(name, given.origin), kind, label, reading)
    elif kind != "DEEPSPEED":
        set_precision(None, kind, label, reading)


def _loaded_in_16_bits(dtype: Given, label: str, reading: Reading, *, adapted: bool, ddp: bool) -> None:
    """Axolotl loads the weights in the type it computes in; only what an adapter trains is in fp32."""
    if adapted:
        reading.values.setdefault("frozen_dtype", dtype)
    elif ddp and dtype.value == "bf16":
        reading.values["precision"] = Given(PRECISION_OF["pure-bf16"], dtype.origin)
        reading.assumptions.append(f"{label}: axolotl loads the weights in bf16, and trains them as they are")


def _is_adapted(found: Found) -> bool:
    adapter = found.get("adapter")
    named = "" if adapter is None else str(adapter.value).lower()
    return named in _ADAPTERS or (found.get("use_peft") is not None and named not in _OFF)


def _adapter(found: Found, label: str, reading: Reading) -> None:
    """LoRA and its kin: what is trained, and in what the frozen weights are held."""
    adapter, rank = found.get("adapter"), found.get("lora_r")
    name = str(adapter.value).lower() if adapter is not None else ""
    on = _is_adapted(found)
    quantized = _quantized(found)
    if quantized is not None and on:
        reading.values["frozen_dtype"] = quantized
    elif quantized is not None:
        reading.warnings.append(f"{label}: quantized weights without an adapter are not modelled")
    if not on:
        if name not in (*_OFF, "full"):
            reading.warnings.append(
                f"{label}: adapter {name!r} moves bytes but is not modelled; say it with --trainable"
            )
        return
    if rank is not None and rank.value not in (AUTO, 0):
        reading.values["lora_rank"] = rank
        _targets(found, label, reading)


def _quantized(found: Found) -> Given | None:
    """The element type of quantized weights."""
    for key, dtype in (("load_in_4bit", "nf4"), ("load_in_8bit", "int8")):
        given = found.get(key)
        if given is not None and given.value is True:
            return Given(dtype, given.origin)
    bits = found.get("quantization_bit")
    dtypes = {4: "nf4", 8: "int8"}
    return Given(dtypes[bits.value], bits.origin) if bits is not None and bits.value in dtypes else None


def _targets(found: Found, label: str, reading: Reading) -> None:
    """Adapted modules by their last names; a pattern is not matched here, and stands for every linear layer."""
    linear, modules = found.get("lora_target_linear"), found.get("lora_target_modules")
    if linear is not None and linear.value is True:
        reading.values["lora_targets"] = Given([ALL_LINEAR], linear.origin)
        return
    if modules is None or modules.value in (AUTO, "", []):
        return
    raw = modules.value if isinstance(modules.value, list) else str(modules.value).split(",")
    names = [str(name).strip().rpartition(".")[2] for name in raw]
    if names in (["all"], ["all-linear"]):
        names = [ALL_LINEAR]
    elif not all(_MODULE.fullmatch(name) for name in names):
        reading.warnings.append(
            f"{label}: lora_target_modules {shown(modules.value)} is a pattern; read as {ALL_LINEAR}"
        )
        names = [ALL_LINEAR]
    reading.values["lora_targets"] = Given(list(dict.fromkeys(names)), modules.origin)


def _checkpointing(found: Found, label: str, reading: Reading) -> None:
    given, disabled = found.get("gradient_checkpointing"), found.get("disable_gradient_checkpointing")
    if disabled is not None and disabled.value is True:
        reading.values["checkpointing"] = Given("none", disabled.origin)
    elif given is not None:
        off = given.value.lower() in _OFF
        reading.values.setdefault("checkpointing", Given("none" if off else "full", given.origin))
        if given.value.lower().startswith("offload"):
            reading.warnings.append(
                f"{label}: gradient_checkpointing = {given.value}: checkpoints in host memory are not modelled"
            )


def _attention(found: Found, reading: Reading) -> None:
    named = found.get("attn_implementation")
    if named is not None:
        word = named.value.lower()
        flash = "flash" if "flash" in word else None
        if (kernel := _ATTENTION.get(word, flash)) is not None:
            reading.values["attention"] = Given(kernel, named.origin)
        return
    for key in (
        "flash_attention",
        "sdp_attention",
        "xformers_attention",
        "flex_attention",
        "eager_attention",
    ):
        given = found.get(key)
        if given is not None and given.value is True:
            reading.values["attention"] = Given(_ATTENTION[key], given.origin)
            return


def _loss(found: Found, reading: Reading) -> None:
    for key, way in _LOSSES.items():
        given = found.get(key)
        if given is not None and given.value is True:
            reading.settings["loss"] = Given(way, given.origin)
            return


def _optimizer(found: Found, label: str, reading: Reading) -> None:
    given = found.get("optimizer")
    if given is None or "optimizer" in reading.values:
        return
    set_optimizer(given, "optimizer", label, reading)
