"""`zerocalc completion`: the script that a shell loads."""

from __future__ import annotations

import click

from zerocalc.cli.complete import words_of
from zerocalc.cli.options import command as _command

EXAMPLES = (
    'eval "$(zerocalc completion bash)"',
    'eval "$(zerocalc completion zsh)"',
    "zerocalc completion fish > ~/.config/fish/completions/zerocalc.fish",
)
SHELLS = ("bash", "zsh", "fish", "powershell")


@_command("completion", examples=EXAMPLES)
@click.argument("shell", metavar="SHELL", shell_complete=words_of(*SHELLS))
def command(shell: str) -> None:
    """Print the completion script of SHELL: bash, zsh, fish or powershell.

    Commands, options, presets, strategies and files are completed.
    """
    from click.shell_completion import get_completion_class

    from zerocalc.cli import COMPLETE_VARIABLE, PROGRAM, cli
    from zerocalc.errors import unknown_name

    known = [name for name in SHELLS if get_completion_class(name) is not None]
    found = get_completion_class(shell.lower()) if shell.lower() in known else None
    if found is None:
        raise unknown_name("shell", shell, known, hint=f"one of {', '.join(known)}")
    click.echo(found(cli, {}, PROGRAM, COMPLETE_VARIABLE).source())
