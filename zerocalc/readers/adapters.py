"""Adapters as the trainers spell them: what LoRA and its kin train, and in what the frozen weights are held."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from zerocalc.errors import shown
from zerocalc.readers.convert import AUTO
from zerocalc.readers.reading import Given, Reading

if TYPE_CHECKING:
    from zerocalc.readers.keys import Found

_ADAPTERS = ("lora", "qlora", "dora", "qalora")
_TRL_RANK = 16
_MODULE = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
ALL_LINEAR = "all-linear"
OFF = ("false", "none", "no", "off", "", "null")
"""Words by which a key is there and asks for nothing."""


def is_adapted(found: Found) -> bool:
    """Whether only an adapter is trained."""
    adapter, peft = found.get("adapter"), found.get("use_peft")
    if adapter is None:
        return peft is not None and peft.value is True
    return str(adapter.value).lower() in _ADAPTERS


def read_adapter(found: Found, label: str, reading: Reading) -> None:
    """LoRA and its kin: what is trained, and in what the frozen weights are held."""
    adapter, rank = found.get("adapter"), found.get("lora_r")
    name = str(adapter.value).lower() if adapter is not None else ""
    on = is_adapted(found)
    quantized = _quantized(found)
    if quantized is not None and on:
        reading.values["frozen_dtype"] = quantized
    elif quantized is not None:
        reading.warnings.append(f"{label}: quantized weights without an adapter are not modelled")
    if not on:
        if name not in (*OFF, "full"):
            reading.warnings.append(
                f"{label}: adapter {name!r} moves bytes but is not modelled; say it with --trainable"
            )
        return
    if rank is None and "use_peft" in found:
        rank = Given(_TRL_RANK, f"default:trl lora_r (not in {label})")
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
