"""`zerocalc sweep`: a grid of configurations, streamed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from zerocalc.cli.group import SectionOption
from zerocalc.cli.options import command as _command
from zerocalc.cli.options import job_options, model_argument

F = TypeVar("F", bound=Callable[..., Any])

EXAMPLES = (
    "zerocalc sweep 70b --gpu 80GB --over gpus=8..1024:*2 --over strategy=zero1,zero2,zero3 --where fits",
    "zerocalc sweep llama-3-8b --node dgx-h100 -n 64 --seq-len 4096 --over micro-batch=1..64 --pareto peak,time",
    "zerocalc sweep 13b --gpu h100 -n 16 --over k=4,12 --over strategy=zero2,zero3 -f csv -q",
)


def _axes(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[Any]:
    from click.shell_completion import CompletionItem

    from zerocalc.jobs.givens import WORDS

    names = sorted(word.replace("_", "-") for word in WORDS)
    return [CompletionItem(f"{name}=") for name in names if name.startswith(incomplete)]


def _columns(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[Any]:
    from zerocalc.sweeps.figures import COLUMNS

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in COLUMNS if name.startswith(last)]


def _grid_option(*flags: str, **settings: Any) -> Callable[[F], F]:
    return click.option(*flags, cls=SectionOption, section="Grid", **settings)


@_command("sweep", examples=EXAMPLES)
@model_argument
@_grid_option(
    "--over", multiple=True, metavar="AXIS=VALUES", shell_complete=_axes,
    help="what varies: 8..64, 8..64:8, 8..1024:*2 or a,b,c; any option, or set.NAME; repeatable",
)  # fmt: skip
@_grid_option("--where", metavar="EXPR", help="keep rows for which this holds: 'fits and step_s_upper < 2'")
@_grid_option("--sort", metavar="COL[:desc]", shell_complete=_columns, help="order by columns, least first")
@_grid_option("--top", metavar="N", type=click.IntRange(1), help="only the first N of that order")
@_grid_option(
    "--pareto", metavar="COL,COL", shell_complete=_columns, help="only rows that none beats in all of these"
)
@job_options
def command(**typed: Any) -> int:
    """Answer for every combination of what varies, and stream the rows.

    A column that is not known is null. Short names: peak, time (the upper bound), sent, headroom, states.
    """
    from zerocalc.cli.sweeping import run

    return run(typed)
