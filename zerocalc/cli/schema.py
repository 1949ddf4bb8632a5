"""`zerocalc schema`: the JSON Schema of any output or input."""

from __future__ import annotations

import click

from zerocalc.cli.options import command as _command

EXAMPLES = ("zerocalc schema", "zerocalc schema compare", "zerocalc schema job")


def _complete(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from zerocalc.schemas import kinds

    return [kind for kind in kinds() if kind.startswith(incomplete)]


@_command("schema", examples=EXAMPLES)
@click.argument("kind", required=False, metavar="[KIND]", shell_complete=_complete)
def command(kind: str | None) -> None:
    """Print the JSON Schema of KIND, or the kinds there are.

    Outputs are named like their commands; job is what a job file resolves to.
    """
    from zerocalc.schemas import kinds, schema_text

    click.echo("\n".join(kinds()) if kind is None else schema_text(kind), nl=kind is None)
