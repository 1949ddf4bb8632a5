"""`zerocalc check`: budgets in the project file, for CI."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from zerocalc.cli.group import SectionOption
from zerocalc.cli.options import command as _command
from zerocalc.cli.options import report_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from zerocalc.questions.check import Check

F = TypeVar("F", bound=Callable[..., Any])

EXAMPLES = (
    "zerocalc check",
    "zerocalc check 'llama-8b fits' --config zerocalc.toml",
    "zerocalc check --baseline-rev origin/main --format github",
    "zerocalc check --write-baseline zerocalc-baseline.json",
)
MAX_SUMMARY_BYTES = 2**20


def file_option(flag: str, text: str) -> Callable[[F], F]:
    """An option about budgets that names a file."""
    return click.option(
        flag, type=click.Path(), cls=SectionOption, section="Budgets", metavar="FILE", help=text
    )


def config_option(function: F) -> F:
    """Where the budgets are."""
    return file_option("--config", "the project file (default: the nearest zerocalc.toml)")(function)


@_command("check", examples=EXAMPLES)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@config_option
@file_option("--baseline", "the accepted figures, for max_increase")
@click.option(
    "--baseline-rev",
    cls=SectionOption,
    section="Budgets",
    metavar="REV",
    help="a git revision whose figures are the baseline",
)
@file_option("--write-baseline", "write the figures of this run there")
@file_option("--summary", "append the report there as Markdown")
@report_options
def command(names: Sequence[str], **typed: Any) -> int:
    """Check the budgets of zerocalc.toml, or of [tool.zerocalc] in pyproject.toml: all, or those named.

    Exits with 1 when a budget is over, with 2 when one cannot be checked.
    """
    from dataclasses import replace

    from zerocalc.cli.budgets import Progress, baseline_of, project_of
    from zerocalc.cli.output import emit
    from zerocalc.questions.check import check

    file = project_of(typed)
    baseline, problems = baseline_of(typed, file, names)
    keep = bool(typed["write_baseline"])
    found = check(file, names=names, baseline=baseline, keep=keep, progress=Progress())
    report = replace(found.report, warnings=[*problems, *found.report.warnings])
    emit(report, typed)
    _summarize(report, typed)
    _keep(found, typed)
    return _EXIT[report.verdict]


_EXIT = {"passed": 0, "failed": 1, "error": 2}


def _summarize(report: Any, typed: Mapping[str, Any]) -> None:
    """Append the report to the summary that is asked for; under `--format github` to that of the step."""
    from zerocalc.cli.output import sink_of
    from zerocalc.render import render

    sink = sink_of(typed, report.kind)
    path = typed["summary"] or (os.environ.get("GITHUB_STEP_SUMMARY") if sink.fmt == "github" else None)
    if not path:
        return
    text = render(report, "markdown", sink.look)
    if len(text.encode()) > MAX_SUMMARY_BYTES:
        kept = text.encode()[: MAX_SUMMARY_BYTES - 100].decode(errors="ignore").rpartition("\n")[0]
        text = f"{kept}\n\n- cut here: the report is longer than a summary may be\n"
    with open(path, "a", encoding="utf-8", newline="\n") as stream:
        stream.write(text)


def _keep(found: Check, typed: Mapping[str, Any]) -> None:
    """Write the figures for later checks. Raises UsageError when they are not those of every budget."""
    path = typed["write_baseline"]
    if not path:
        return
    from zerocalc.cli.files import write_atomically
    from zerocalc.errors import UsageError
    from zerocalc.questions.diff import baseline
    from zerocalc.render import render

    if found.report.verdict == "error":
        raise UsageError(f"{path}: not written: a budget could not be checked")
    write_atomically(path, render(baseline(found.snapshots), "json"))
