"""`zerocalc estimate`: one configuration in full."""

from __future__ import annotations

from typing import Any

from zerocalc.cli.options import command as _command
from zerocalc.cli.options import drawn_job_options, emit_option, model_argument

EXAMPLES = (
    "zerocalc estimate 70b --dp 64 --gpu 80GB --strategy zero3",
    "zerocalc estimate llama-3-8b -n 8 --gpu h100 --strategy zero2 --micro-batch 1 --seq-len 4096",
    "zerocalc estimate 13b -n 16 --node dgx-h100 --strategy zero3 --offload-optimizer cpu",
    "zerocalc estimate 70b -n 64 --strategy zero3 --emit accelerate",
)


@_command("estimate", examples=EXAMPLES)
@model_argument
@drawn_job_options
@emit_option
def command(**typed: Any) -> int:
    """Answer for one configuration in full: every term in every phase, every tier, every collective.

    MODEL is a count (70b, 7.5e9), a preset (llama-3-8b) or a path (./config.json, weights.safetensors).
    """
    from zerocalc.cli.output import emit
    from zerocalc.cli.pictures import with_curves
    from zerocalc.cli.question import one, question
    from zerocalc.cli.verdict import exit_code
    from zerocalc.evaluate import estimate

    asked = one(question(typed))
    result = estimate(asked.job)
    code = exit_code(result, typed)
    if typed["emit"]:
        from zerocalc.cli.emitted import emit_fragment

        emit_fragment(asked.job, typed, result.warnings)
    else:
        emit(with_curves(result, asked.job, typed), typed)
    return code
