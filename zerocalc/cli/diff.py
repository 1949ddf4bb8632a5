"""`zerocalc diff`: what changed between two answers, and why."""

from __future__ import annotations

from typing import Any

import click

from zerocalc.cli.check import config_option
from zerocalc.cli.failures import OK, USAGE
from zerocalc.cli.group import SectionOption
from zerocalc.cli.options import command as _command
from zerocalc.cli.options import output_options

EXAMPLES = (
    "zerocalc diff before.json after.json",
    "zerocalc diff --rev main",
    "zerocalc diff --rev v1.0..HEAD 'llama-8b fits'",
)


@_command("diff", examples=EXAMPLES)
@click.argument("files", nargs=-1, metavar="[BASE NEW]")
@click.option(
    "--rev",
    cls=SectionOption,
    section="Budgets",
    metavar="REV[..REV]",
    help="the budgets at a git revision against the work tree, or at two revisions",
)
@config_option
@output_options
def command(files: tuple[str, ...], **typed: Any) -> int:
    """Say which inputs changed between two answers, which terms moved and by how much.

    BASE and NEW are JSON from compare, estimate or check --write-baseline; with --rev, names of budgets.
    """
    from zerocalc.cli.output import emit
    from zerocalc.questions.diff import diff, read_snapshots

    if typed["rev"]:
        return _revisions(files, typed)
    base, new = _two(files)
    emit(diff(read_snapshots(base), read_snapshots(new), names=(base, new)), typed)
    return OK


def _two(files: tuple[str, ...]) -> tuple[str, str]:
    from zerocalc.errors import UsageError

    if len(files) != 2:
        raise UsageError(
            f"diff compares two answers (got {len(files)})",
            hint="`zerocalc diff before.json after.json`, or `zerocalc diff --rev main`",
        )
    return files[0], files[1]


def _revisions(names: tuple[str, ...], typed: Any) -> int:
    """The budgets at two revisions; 2 where one of the new ones has no figures."""
    from zerocalc.cli.budgets import snapshots_at
    from zerocalc.cli.output import emit
    from zerocalc.jobs.revisions import split_range
    from zerocalc.questions.diff import diff

    former, latter = split_range(typed["rev"])
    base, missing = snapshots_at(former, typed, names)
    new, problems = snapshots_at(latter, typed, names)
    emit(diff(base, new, names=(former, latter or "work tree"), warnings=[*missing, *problems]), typed)
    return USAGE if problems else OK
