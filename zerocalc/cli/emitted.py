"""`--emit TOOL`: the answer as a fragment of that tool's own file, in place of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from zerocalc.cli.failures import NO, OK
from zerocalc.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from zerocalc.results import Solution, SolveAnswer
    from zerocalc.specs.job import Job


def emit_fragment(job: Job, typed: Mapping[str, Any], warnings: Sequence[str] = ()) -> None:
    """Write the fragment to stdout or to `--output`, and what it leaves unsaid to stderr.

    Raises UsageError for what the tool cannot express, UnknownNameError for another tool.
    """
    from zerocalc.writers import fragment
    from zerocalc.writers.common import flags

    if typed.get("format"):
        raise UsageError("--emit prints the tool's own format", hint="leave out --format")
    part = fragment(job, str(typed["emit"]))
    path = typed.get("output")
    if path in {None, "-"}:
        click.echo(part.text, nl=False)
    else:
        from zerocalc.cli.files import write_atomically

        write_atomically(str(path), part.text)
    if typed.get("quiet"):
        return
    if part.unsaid:
        click.echo(f"left to the training script and the launcher: {flags(part.unsaid)}", err=True)
    for note in part.notes:
        click.echo(f"note: {note}", err=True)
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)


def emit_solution(job: Job, result: Solution, typed: Mapping[str, Any]) -> int:
    """Write the one answer of `solve` as a fragment; 1 and the reasons where there is none.

    Raises UsageError where several strategies have an answer.
    """
    found = [answer for answer in result.answers if answer.value is not None]
    if len(found) > 1:
        names = [answer.strategy for answer in found]
        raise UsageError(
            f"--emit writes one configuration, and {len(names)} strategies have an answer",
            hint=f"give --strategy: {', '.join(names)}",
        )
    if not found:
        for answer in result.answers:
            click.echo(f"{answer.strategy}: {answer.reason}", err=True)
        return NO
    emit_fragment(solved_job(job, result.quantity, found[0]), typed, result.warnings)
    return OK


def solved_job(job: Job, quantity: str, answer: SolveAnswer) -> Job:
    """The job with the unknown filled in."""
    from zerocalc.questions.solve import with_degree

    solved = job.model_copy(update={"strategy": answer.strategy})
    if quantity == "gpus":
        return with_degree(solved, int(answer.data_parallel_size or 1))
    if quantity == "params":
        model = type(job.model)(num_params=int(answer.value or 0), name=str(answer.value))
        return solved.model_copy(update={"model": model})
    if quantity in {"micro-batch", "seq-len"}:
        work = job.workload.model_copy(update={quantity.replace("-", "_"): answer.value})
        return solved.model_copy(update={"workload": work})
    return solved
