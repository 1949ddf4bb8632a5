"""What a model is made of: exact counts from its layout. The answer stands here so that others need not build it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zerocalc.architectures.counts import LayerResult, count_params
from zerocalc.errors import UsageError
from zerocalc.jobs.givens import Givens
from zerocalc.jobs.model import architecture_named
from zerocalc.readers.reading import Given, HubId
from zerocalc.results import Answer, Resolved

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(kw_only=True, eq=False, repr=False)
class Counts(Answer):
    """`params`: what a model is made of. Tied matrices count once unless the name says otherwise."""

    num_params: int
    num_params_tied_twice: int
    num_active_params: int | None
    """Parameters one token passes through; null where it is not known how many experts it visits."""
    num_active_params_excl_input_embedding: int | None
    num_input_embedding_params: int
    num_head_params: int
    num_expert_params: int
    num_shared_expert_params: int
    num_router_params: int
    largest_layer: str
    largest_layer_params: int
    """Largest sum of parameters owned directly by one module."""
    largest_tensor: str
    largest_tensor_params: int
    num_tensors: int
    num_layers: int
    layers: list[LayerResult]
    ties: list[str]
    """Names that share another's storage, as `name = target`."""
    assumptions: list[str] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def params(model: str, *, presets_dir: Path | None = None) -> Counts:
    """Count a preset, a config.json, a safetensors file or a folder with either, or a model on the Hub.

    Raises UsageError for a bare count, which has no tensors to count; FileError and UnknownNameError as reading it does.
    """
    givens = Givens({"model": Given(model, "flag")}, presets_dir)
    text = model if isinstance(model, HubId) else givens.text("model") or ""
    architecture, origin = architecture_named(givens, text)
    if architecture is None:
        raise UsageError(
            f"{text} is a count already; params needs a model whose tensors are known",
            hint="give a preset (llama-3-8b) or a path (./config.json)",
        )
    counted = count_params(architecture)
    return Counts(
        kind="params",
        request={
            "model": Resolved(value=text, origin="flag"),
            "num_params": Resolved(value=counted.num_params, origin=origin or "flag"),
        },
        **{name: value for name, value in vars(counted).items() if name.startswith("num_")},
        largest_layer=counted.largest_layer,
        largest_layer_params=counted.largest_layer_params,
        largest_tensor=counted.largest_tensor.name,
        largest_tensor_params=counted.largest_tensor.numel,
        layers=list(counted.layers),
        ties=[f"{tie.name} = {tie.target}" for tie in counted.ties],
        assumptions=[*dict.fromkeys([*givens.assumptions, *architecture.assumptions])],
        warnings=list(givens.warnings),
    )
