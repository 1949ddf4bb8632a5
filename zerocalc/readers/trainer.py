"""The trainers' own files: axolotl, the Hugging Face Trainer, LLaMA-Factory. They launch FSDP or DeepSpeed by a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocalc.errors import shown
from zerocalc.readers.adapters import OFF, is_adapted, read_adapter
from zerocalc.readers.convert import AUTO
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
_UNDECIDED = (AUTO, "true")


def trainer_reading(data: Mapping[str, Any], label: str, *, dp: int | None = None) -> Reading:
    """The reading of a trainer's configuration that is already a mapping."""
    reading = Reading()
    found = scan(data, KEYS, label, reading)
    named = found.get("model")
    if named is not None and isinstance(named.value, str) and "base_model" not in found:
        reading.values["model"] = named
    kind = _strategy(found, label, reading, dp)
    _groups(found, reading)
    _data_parallel(found, kind, reading)
    set_hybrid_group(label, reading)
    read_adapter(found, label, reading)
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
    if deepspeed is not None and isinstance(deepspeed.value, str) and deepspeed.value.lower() not in OFF:
        reading.values["framework"] = Given("deepspeed", deepspeed.origin)
        if "${" in deepspeed.value:
            reading.warnings.append(
                f"{label}: deepspeed is a placeholder ({shown(deepspeed.value)}); give --deepspeed"
            )
        elif (inner := read_beside(deepspeed.value, label, reading, dp=dp)) is not None:
            reading.absorb(inner)
        return "DEEPSPEED"
    if any(key in found for key in _MEGATRON):
        return _megatron(found, label, reading)
    if (launcher := found.get("dist_config.name")) is not None:
        return _dist_config(launcher, found, label, reading, dp)
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


_MEGATRON = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "use_distributed_optimizer")
"""Keys that hand the training to Megatron-Core."""


def _megatron(found: Found, label: str, reading: Reading) -> str:
    sharded = found.get("use_distributed_optimizer")
    on = sharded is not None and sharded.value is True
    origin = sharded.origin if sharded else f"default:use_distributed_optimizer (not in {label})"
    reading.values["framework"] = Given("megatron", f"file:{label}")
    reading.values["strategy"] = Given("zero1" if on else "ddp", origin)
    granularity = found.get("recompute_granularity")
    if granularity is not None and granularity.value.lower() in ("full", "selective"):
        reading.values["checkpointing"] = Given(granularity.value.lower(), granularity.origin)
    return "MEGATRON_LM"


def _dist_config(launcher: Given, found: Found, label: str, reading: Reading, dp: int | None) -> str:
    """LLaMA-Factory's own section: FSDP2, or DeepSpeed by its file."""
    word = launcher.value.lower()
    if word == "deepspeed":
        reading.values["framework"] = Given("deepspeed", launcher.origin)
        named = found.get("dist_config.config_file")
        if named is not None and (inner := read_beside(named.value, label, reading, dp=dp)) is not None:
            reading.absorb(inner)
        return "DEEPSPEED"
    if not word.startswith("fsdp"):
        reading.warnings.append(
            f"{label}: dist_config.name {shown(launcher.value)} is not known; read as fsdp2"
        )
    apply_fsdp(found, FSDP, label, reading, version=Given(2, launcher.origin))
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
        (name, given) for name, given in candidates.items() if given and str(given.value).lower() not in OFF
    ]
    if _loaded(found, kind, label, reading, mixed=bool(on)):
        return
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
        _loaded_in_16_bits(Given(name, given.origin), found, label, reading, ddp=kind == "MULTI_GPU")
        set_precision(Given(name, given.origin), kind, label, reading)
    elif kind != "DEEPSPEED":
        set_precision(None, kind, label, reading)


def _loaded_in_16_bits(dtype: Given, found: Found, label: str, reading: Reading, *, ddp: bool) -> None:
    """Axolotl loads the weights in the type it computes in, LLaMA-Factory does where only an adapter is trained."""
    axolotl = "base_model" in found and found["base_model"].origin.endswith(":base_model")
    factory = "adapter" in found and found["adapter"].origin.endswith(":finetuning_type")
    if is_adapted(found):
        if axolotl or factory:
            reading.values.setdefault("frozen_dtype", dtype)
    elif axolotl and ddp and dtype.value == "bf16":
        reading.values["precision"] = Given(PRECISION_OF["pure-bf16"], dtype.origin)
        reading.assumptions.append(f"{label}: axolotl loads the weights in bf16, and trains them as they are")


def _loaded(found: Found, kind: str, label: str, reading: Reading, *, mixed: bool) -> bool:
    """Whether weights loaded in bf16 are trained as they are: without a policy that keeps an fp32 copy."""
    given = found.get("torch_dtype")
    if given is None or str(given.value).lower().removeprefix("torch.") not in ("bfloat16", "bf16"):
        return False
    if is_adapted(found):
        reading.values.setdefault("frozen_dtype", Given("bf16", given.origin))
        return False
    if kind == "MULTI_GPU" or (kind == "FSDP" and not mixed):
        reading.values["precision"] = Given(PRECISION_OF["pure-bf16"], given.origin)
        reading.assumptions.append(f"{label}: weights loaded in bf16 are trained as they are")
        return True
    return False


def _checkpointing(found: Found, label: str, reading: Reading) -> None:
    given, disabled = found.get("gradient_checkpointing"), found.get("disable_gradient_checkpointing")
    if disabled is not None and disabled.value is True:
        reading.values["checkpointing"] = Given("none", disabled.origin)
    elif given is not None:
        off = given.value.lower() in OFF
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
