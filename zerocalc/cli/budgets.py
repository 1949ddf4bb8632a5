"""What `check` and `diff` share: the project file, the baseline, progress, figures at a revision."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerocalc.errors import FileError, UsageError, ZerocalcError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from zerocalc.jobs.project import ProjectFile
    from zerocalc.results.check import Snapshot

_EVERY = 20
"""Budgets between two updates of the progress line."""


def project_of(typed: Mapping[str, Any]) -> ProjectFile:
    """The project file that is named, or the nearest. Raises FileError, SpecError."""
    from zerocalc.jobs.project import find_project, read_project

    return read_project(Path(typed["config"]) if typed.get("config") else find_project())


def baseline_of(
    typed: Mapping[str, Any], file: ProjectFile, names: Sequence[str]
) -> tuple[list[Snapshot] | None, list[str]]:
    """The figures that growth is measured against, None where none are named; and what was wrong with them.

    Raises UsageError for two baselines, FileError for one that cannot be read.
    """
    from zerocalc.questions.diff import read_snapshots

    flag, revision = typed.get("baseline"), typed.get("baseline_rev")
    if names and typed.get("write_baseline"):
        raise UsageError("--write-baseline keeps the figures of all budgets", hint="leave the names away")
    if flag and revision:
        raise UsageError("--baseline and --baseline-rev both name a baseline", hint="give one of them")
    if revision:
        return snapshots_at(revision, typed)
    named = file.project.baseline
    path = flag or (str(file.base / named) if named else None)
    if path is None or (typed.get("write_baseline") and not Path(path).exists()):
        return None, []
    try:
        return read_snapshots(path), []
    except FileError as error:
        hint = error.hint or f"`zerocalc check --write-baseline {path}` writes it"
        raise FileError(error.message, hint=hint) from None


def snapshots_at(
    revision: str | None, typed: Mapping[str, Any], names: Sequence[str] = ()
) -> tuple[list[Snapshot], list[str]]:
    """The figures of the budgets at a revision (None: as they are now), and one line for each that has none."""
    from zerocalc.questions.check import check

    if revision is None:
        found = check(project_of(typed), names=names, keep=True)
    else:
        from zerocalc.jobs.revisions import inside

        with inside(revision):
            try:
                found = check(project_of(_here(typed)), keep=True)
            except ZerocalcError as error:
                return [], [f"{revision}: {error.message}"]
    where, kept = revision or "the work tree", {snapshot.name for snapshot in found.snapshots}
    problems = [
        f"{where}: budget {budget.name!r}: {budget.problem.message}"
        for budget in found.report.budgets
        if budget.problem and budget.name not in kept
    ]
    return [snapshot for snapshot in found.snapshots if not names or snapshot.name in names], problems


def _here(typed: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options with a config file that is found in the revision's own folder. Raises UsageError outside it."""
    config = typed.get("config")
    if config and Path(config).is_absolute():
        raise UsageError(f"--config {config}: with a revision, give it relative to the working directory")
    return typed


class Progress:
    """A line on a terminal's stderr that says how far a check is; nothing anywhere else."""

    def __init__(self) -> None:
        self.shown = False
        self.on = sys.stderr is not None and sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        """Say that `done` of `total` budgets are checked; clear the line after the last."""
        if not self.on or total <= _EVERY:
            return
        if done == total and self.shown:
            self._write("\r\033[K")
        elif done % _EVERY == 0:
            self.shown = True
            self._write(f"\rchecking {done} of {total}")

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:
            self.on = False
