"""`zerocalc compare`: the default question."""

from __future__ import annotations

from typing import Any

from zerocalc.cli.options import command as _command
from zerocalc.cli.options import drawn_job_options, model_argument

EXAMPLES = (
    "zerocalc compare 70b --dp 64 --gpu 80GB",
    "zerocalc compare llama-2-70b -n 64 --gpu a100-80gb",
    "zerocalc compare 7.5b -n 8 --gpu h100 --optimizer sgd --format json",
    "zerocalc compare 13b -n 8 --node dgx-h100 --offload-optimizer cpu",
    "zerocalc compare llama-3-8b -n 64 --node dgx-h100 --micro-batch 1 --seq-len 8192 --chart",
)


@_command("compare", examples=EXAMPLES)
@model_argument
@drawn_job_options
def command(**typed: Any) -> int:
    """Put DDP, ZeRO-1, ZeRO-2 and ZeRO-3 side by side and say which of them fits.

    MODEL is a count (70b, 7.5e9), a preset (llama-3-8b) or a path (./config.json, weights.safetensors).
    """
    from zerocalc.cli.output import emit
    from zerocalc.cli.pictures import with_curves
    from zerocalc.cli.question import question
    from zerocalc.cli.verdict import exit_code
    from zerocalc.questions.compare import compare
    from zerocalc.strategies import COMPARED

    asked = question(typed)
    result = compare(asked.job, strategies=asked.strategies_or(COMPARED), frameworks=asked.frameworks or None)
    code = exit_code(result, typed)
    emit(with_curves(result, asked.job, typed), typed)
    return code
