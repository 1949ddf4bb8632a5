"""Names that other tools give to optimizers, precisions and models, in zerocalc's own."""

from __future__ import annotations

import re

from zerocalc.readers.reading import Given, Reading

PRECISION_OF = {
    "bf16": "mixed-bf16",
    "fp16": "mixed-fp16",
    "fp32": "fp32",
    "no": "fp32",
    "fp8": "fp8-te",
    "pure-bf16": "bf16-pure",
    "autocast": "fp32",
    "bf16-master": "bf16-master",
    "bf16-master-states": "bf16-master-states",
}
"""Presets of `--precision` by what the tools call them; autocast keeps fp32 weights, gradients and states."""

_OPTIMIZERS = {
    "adam": ("adam", "fusedadam", "cpuadam", "deepspeedadam", "torchadam"),
    "adamw": (
        "adamw", "fusedadamw", "deepspeedcpuadam", "deepspeedadamw", "torchadamw", "adamwtorch", "adamwtorchfused",
        "adamwhf", "adamwapexfused", "adamwtorchxla", "adamwtorchnpufused", "adamwanyprecision", "pagedadamw",
        "pagedadamw32bit", "adamw32bit",
    ),
    "adam8bit": ("adam8bit", "adamw8bit", "adamwbnb8bit", "pagedadamw8bit", "pagedadam8bit"),
    "adam8bit-torchao": ("adamwtorch8bit", "aoadamw8bit", "adamwfp8", "aoadamwfp8"),
    "adam4bit": ("adamwtorch4bit", "aoadamw4bit"),
    "adafactor-hf": ("adafactor",),
    "sgd": ("sgd",),
    "lion": ("lion", "fusedlion", "cpulion", "lion32bit", "pagedlion32bit"),
    "muon": ("muon",),
}  # fmt: skip
"""Presets of `--optimizer` by the names other tools use, without case and punctuation."""

_SAME_BYTES = {
    "lamb": ("adam", ("lamb", "fusedlamb")),
    "sgd-momentum": ("sgd-momentum", ("adagrad", "cpuadagrad", "rmsprop", "rmspropbnb")),
    "1-bit": ("adam", ("onebitadam", "onebitlamb", "zerooneadam")),
}
"""Optimizers that keep what a preset keeps: two moments as Adam, one state as SGD with momentum."""
_COMPRESSED = ("onebit", "zeroone")


def set_optimizer(given: Given, key: str, label: str, reading: Reading, *, momentum: bool = False) -> None:
    """Put the preset of another tool's optimizer into the reading, or say that it is not known."""
    plain = re.sub(r"[^a-z0-9]", "", given.value.lower().rpartition(".")[2])
    name = next((preset for preset, names in _OPTIMIZERS.items() if plain in names), None)
    if name == "sgd" and momentum:
        name = "sgd-momentum"
    if name is None:
        name = next((preset for preset, names in _SAME_BYTES.values() if plain in names), None)
        if name is not None:
            reading.assumptions.append(f"{label}: {key} {given.value} keeps the bytes of {name}")
    if name is None:
        reading.warnings.append(
            f"{label}: {key} {given.value!r} is not known; say its bytes with --optimizer or --k"
        )
        return
    reading.values["optimizer"] = Given(name, given.origin)
    if plain.startswith(_COMPRESSED):
        reading.warnings.append(
            f"{label}: {key} {given.value} moves bytes that are not modelled (error feedback, compressed gradients)"
        )
    if plain.startswith("paged"):
        reading.warnings.append(
            f"{label}: {key} {given.value} may move states to host memory, which is not modelled"
        )
