"""`zerocalc solve`: the unknown."""

from __future__ import annotations

from typing import Any

import click

from zerocalc.cli.complete import words_of
from zerocalc.cli.options import command as _command
from zerocalc.cli.options import emit_option, job_options, model_argument

EXAMPLES = (
    "zerocalc solve gpus 70b --gpu 80GB",
    "zerocalc solve params -n 64 --gpu a100-80gb",
    "zerocalc solve strategy llama-3-8b -n 8 --gpu h100",
)


@_command("solve", examples=EXAMPLES)
@click.argument(
    "quantity",
    metavar="QUANTITY",
    shell_complete=words_of("params", "gpus", "strategy", "micro-batch", "seq-len"),
)
@model_argument
@job_options
@emit_option
def command(quantity: str, **typed: Any) -> int:
    """Solve for the one thing that is not known, under each strategy.

    QUANTITY is params (the largest model that fits), gpus (the fewest GPUs), strategy (of those that fit, the one that
    sends least), micro-batch or seq-len (the largest that fit). Exits with 1 when there is no answer at all.
    """
    from zerocalc.cli.output import emit, one_of
    from zerocalc.cli.question import question
    from zerocalc.cli.verdict import solved
    from zerocalc.questions.solve import SOLVERS, solve
    from zerocalc.strategies import COMPARED

    model = typed["model"] or quantity
    unknown = one_of(
        quantity,
        (*SOLVERS, "strategy"),
        "QUANTITY",
        hint=f"it comes first: zerocalc solve gpus {model} --gpu 80GB",
    )
    asked = question(typed, unknown=unknown)
    result = solve(asked.job, unknown, strategies=asked.strategies_or(COMPARED))
    if typed["emit"]:
        from zerocalc.cli.emitted import emit_solution

        return emit_solution(asked.job, result, typed)
    emit(result, {**typed, "quantity": unknown})
    return solved(result)
