"""`zerocalc presets`: what can be named."""

from __future__ import annotations

from typing import Any

import click

from zerocalc.cli.complete import preset_name_completion, words_of
from zerocalc.cli.group import ExampleGroup
from zerocalc.cli.options import command as _command
from zerocalc.cli.options import output_options, presets_option

_KINDS = words_of("models", "gpus", "nodes", "optimizers", "precisions", "links", "overheads", "settings")
EXAMPLES = (
    "zerocalc presets list gpus",
    "zerocalc presets show gpus h100",
    "zerocalc presets show models llama-3-8b",
)


@click.group(
    "presets",
    cls=ExampleGroup,
    examples=EXAMPLES,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """List presets, or show one with the source of every figure.

    Kinds are models, gpus, nodes, optimizers, precisions, links, overheads, and settings: what --set takes.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@_command("list", examples=EXAMPLES[:1])
@click.argument("kind", required=False, metavar="[KIND]", shell_complete=_KINDS)
@presets_option
@output_options
def list_command(kind: str | None, **typed: Any) -> None:
    """List the presets of KIND, or the kinds there are."""
    from zerocalc.cli.output import emit
    from zerocalc.cli.question import presets_dir
    from zerocalc.questions.presets import presets

    emit(presets(kind, directory=presets_dir(typed)), typed)


@_command("show", examples=EXAMPLES[1:])
@click.argument("kind", metavar="KIND", shell_complete=_KINDS)
@click.argument("name", metavar="NAME", shell_complete=preset_name_completion)
@presets_option
@output_options
def show_command(kind: str, name: str, **typed: Any) -> None:
    """Show one preset, every figure with its source."""
    from zerocalc.cli.output import emit
    from zerocalc.cli.question import presets_dir
    from zerocalc.questions.presets import preset

    emit(preset(kind, name, directory=presets_dir(typed)), typed)


command.add_command(list_command)
command.add_command(show_command)
