"""Names that other tools give to optimizers, precisions and models, in zerocalc's own."""

from __future__ import annotations

import re

PRECISION_OF = {
    "bf16": "bf16-mixed",
    "fp16": "fp16-mixed",
    "fp32": "fp32",
    "no": "fp32",
    "fp8": "fp8",
    "pure-bf16": "bf16-pure",
    "autocast": "amp-autocast",
}
"""Presets of `--precision` by what the tools call them; autocast keeps fp32 weights, gradients and states."""

_OPTIMIZERS = {
    "adam": "adam", "adamw": "adamw", "fusedadam": "adam", "fusedadamw": "adamw", "cpuadam": "adam",
    "deepspeedcpuadam": "adamw", "deepspeedadam": "adam",
    "deepspeedadamw": "adamw", "torchadam": "adam", "torchadamw": "adamw", "adamwtorch": "adamw", "adamwtorchfused": "adamw", "adamwhf": "adamw",
    "adamwapexfused": "adamw", "adamwtorchxla": "adamw", "adamwtorchnpufused": "adamw", "adamwanyprecision": "adamw",
    "pagedadamw": "adamw", "pagedadamw32bit": "adamw", "adamw32bit": "adamw",
    "adamw8bit": "adamw-8bit", "adamwbnb8bit": "adamw-8bit", "pagedadamw8bit": "adamw-8bit", "adam8bit": "adamw-8bit",
    "adamwtorch8bit": "adamw-8bit", "adamwtorch4bit": "adamw-4bit", "aoadamw8bit": "adamw-8bit",
    "aoadamw4bit": "adamw-4bit", "adamwfp8": "adamw-8bit", "aoadamwfp8": "adamw-8bit",
    "sgd": "sgd", "adagrad": "adagrad", "cpuadagrad": "adagrad", "adafactor": "adafactor",
    "lion": "lion", "fusedlion": "lion", "cpulion": "lion", "lion32bit": "lion", "pagedlion32bit": "lion",
    "lion8bit": "lion-8bit", "pagedlion8bit": "lion-8bit", "muon": "muon", "lamb": "lamb", "fusedlamb": "lamb",
    "onebitadam": "adam", "onebitlamb": "lamb", "zerooneadam": "adam", "rmsprop": "rmsprop",
}  # fmt: skip
_COMPRESSED = ("onebit", "zeroone")


def optimizer_name(text: str, *, momentum: bool = False) -> tuple[str | None, str]:
    """zerocalc's name for an optimizer of another tool (None when unknown), and what its count leaves out."""
    plain = re.sub(r"[^a-z0-9]", "", text.lower().rpartition(".")[2])
    name = _OPTIMIZERS.get(plain)
    if name == "sgd" and momentum:
        name = "sgd-momentum"
    note = (
        "error-feedback buffers and compressed gradients are not modelled"
        if plain.startswith(_COMPRESSED)
        else ""
    )
    return name, note
