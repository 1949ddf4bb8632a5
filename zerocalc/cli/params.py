"""`zerocalc params`: exact counts."""

from __future__ import annotations

from typing import Any

from zerocalc.cli.options import command as _command
from zerocalc.cli.options import hub_option, model_argument, output_options, presets_option

EXAMPLES = (
    "zerocalc params llama-3-8b",
    "zerocalc params mixtral-8x7b --format json",
)


@_command("params", examples=EXAMPLES)
@model_argument
@hub_option
@presets_option
@output_options
def command(**typed: Any) -> None:
    """Count a model's parameters exactly: all, active per token, embeddings, the largest layer.

    MODEL is a preset (llama-3-8b) or a path (./config.json, weights.safetensors, a folder with either).
    """
    from zerocalc.cli.output import emit
    from zerocalc.cli.question import presets_dir, required_model
    from zerocalc.questions.params import params

    emit(params(required_model(typed), presets_dir=presets_dir(typed)), typed)
