"""`zerocalc explain`: where a number comes from."""

from __future__ import annotations

from typing import Any

import click

from zerocalc.cli.complete import words_of
from zerocalc.cli.options import against_option, job_options, model_argument
from zerocalc.cli.options import command as _command

EXAMPLES = (
    "zerocalc explain total 70b --dp 64 --strategy zero3",
    "zerocalc explain optimizer_states 7.5b -n 64",
    "zerocalc explain sent llama-3-8b -n 8 --strategy zero2",
    "zerocalc explain peak llama-3-8b -n 8 --against pytorch",
)
_QUANTITIES = words_of(
    "params", "grads", "optimizer_states", "model_states", "floor", "peak", "host", "nvme", "sent", "links",
    "activations", "offload",
)  # fmt: skip


@_command("explain", examples=EXAMPLES)
@click.argument("quantity", metavar="QUANTITY", shell_complete=_QUANTITIES)
@model_argument
@against_option
@job_options
def command(quantity: str, against: str | None, **typed: Any) -> None:
    """Show the formula, the numbers in it, where each came from, and the source.

    QUANTITY is params, grads, optimizer_states, model_states (or total), floor, peak, host, nvme, sent, links, or the
    name of one term; activations lists every saved tensor, offload the tables of ZeRO-Offload and ZeRO-Infinity.
    With --against, the peaks of two frameworks are lined up term by term.
    """
    from zerocalc.cli.output import emit
    from zerocalc.cli.question import question
    from zerocalc.questions.explain import explain
    from zerocalc.strategies import COMPARED

    asked = question(typed)
    strategies = asked.strategies_or(COMPARED)
    if against is not None:
        from zerocalc.questions.against import contrast

        emit(contrast(asked.job, against, strategies=strategies), typed)
        return
    emit(explain(asked.job, quantity, strategies=strategies), typed)
