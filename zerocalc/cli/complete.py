"""Completion of values. Names are read only when a shell asks for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

Complete = Callable[[click.Context, click.Parameter, str], list[Any]]


def presets_of(kind: str) -> Complete:
    """Completion of the names of a kind of preset, read only when the shell asks."""

    def complete(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[Any]:
        from zerocalc.presets import preset_ids

        return [name for name in preset_ids(kind) if name.startswith(incomplete)]

    return complete


def _listed(incomplete: str, names: Sequence[str]) -> list[Any]:
    """Completion of the last of several names with commas between them."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in names if name.startswith(last)]


def strategies_completion(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Completion of strategies, several with commas between them."""
    from zerocalc.strategies import STRATEGIES

    return _listed(incomplete, list(STRATEGIES))


def frameworks_completion(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Completion of frameworks, several with commas between them."""
    from zerocalc.frameworks import FRAMEWORKS

    return _listed(incomplete, list(FRAMEWORKS))


def model_completion(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Completion of a model: a preset's name, or a path."""
    from click.shell_completion import CompletionItem

    if incomplete[:1] in {".", "/", "~"}:
        return [CompletionItem(incomplete, type="file")]
    return [CompletionItem(name) for name in presets_of("models")(ctx, parameter, incomplete)]


def preset_name_completion(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Completion of a preset's name, once its kind stands before it."""
    kind = ctx.params.get("kind")
    if kind in {"settings", "setting"}:
        from zerocalc.questions.settings import all_settings

        return [name for name in all_settings() if name.startswith(incomplete)]
    return presets_of(kind)(ctx, parameter, incomplete) if kind else []


def paths_of(kind: str) -> Complete:
    """Completion left to the shell: `file` or `dir`."""

    def complete(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type=kind)]

    return complete


def words_of(*names: str) -> Complete:
    """Completion of fixed words."""
    return lambda _ctx, _parameter, incomplete: [name for name in names if name.startswith(incomplete)]
