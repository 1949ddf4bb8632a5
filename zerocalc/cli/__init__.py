"""The command line. `main` owns the exit codes; every command is one row here and one module beside it.

To add a command, add a row to `COMMANDS` and a module with a `command`. The row is all that `--help` and completion
read, so that neither imports a command.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NoReturn

import click

from zerocalc._version import __version__
from zerocalc.cli.failures import INTERRUPTED, OK, PIPE_CLOSED, report, silence_stdout
from zerocalc.cli.group import LazyGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "zerocalc"
COMPLETE_VARIABLE = "_ZEROCALC_COMPLETE"

COMMANDS = {
    "compare": ("zerocalc.cli.compare", "DDP, ZeRO-1, ZeRO-2, ZeRO-3 side by side: what fits"),
    "estimate": ("zerocalc.cli.estimate", "one configuration in full: every term, phase and collective"),
    "params": ("zerocalc.cli.params", "exact parameter counts of a model or config.json"),
    "solve": ("zerocalc.cli.solve", "the unknown: largest model, fewest GPUs, cheapest strategy"),
    "plan": ("zerocalc.cli.plan", "search for the configuration to run"),
    "sweep": ("zerocalc.cli.sweep", "a grid of configurations, streamed, filtered and ranked"),
    "check": ("zerocalc.cli.check", "budgets in zerocalc.toml, for CI"),
    "diff": ("zerocalc.cli.diff", "what changed between two answers or revisions, and why"),
    "explain": ("zerocalc.cli.explain", "where a number comes from: formula, inputs, source"),
    "presets": ("zerocalc.cli.presets", "models, GPUs, nodes, optimizers, settings … by name"),
    "schema": ("zerocalc.cli.schema", "JSON Schema of any output or input file"),
    "completion": ("zerocalc.cli.completion", "the completion script of a shell"),
}

INTRO = """\
zerocalc says what each rank holds, what crosses the wire, and which ZeRO configuration fits.

Which strategy fits?
  zerocalc compare 70b --dp 64 --gpu 80GB

How few GPUs does it take?
  zerocalc solve gpus llama-3-8b --gpu h100

Where does a number come from?
  zerocalc explain total 70b --dp 64 --strategy zero3

`zerocalc --help` lists every command, `zerocalc COMMAND --help` its options.
"""


@click.group(
    cls=LazyGroup,
    rows=COMMANDS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Memory and communication of ZeRO and FSDP training, exactly, without a GPU."""
    if ctx.invoked_subcommand is None:
        click.echo(INTRO, nl=False)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code. Nothing but KeyboardInterrupt's twin, exit 130, is special."""
    arguments = list(arguments)
    try:
        if instruction := os.environ.get(COMPLETE_VARIABLE):
            return _complete(instruction)
        code = _invoke(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()
        return PIPE_CLOSED
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except Exception as error:
        return report(error, arguments)
    return code


def _invoke(arguments: list[str]) -> int:
    """Parse and run, letting every error through; click's own exits (help, version) become their code."""
    try:
        with cli.make_context(PROGRAM, arguments, terminal_width=_help_width()) as context:
            answer = cli.invoke(context)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    return answer if isinstance(answer, int) else OK


def _help_width() -> int:
    """Columns for help: COLUMNS, else the terminal's, at most 100. Asked here because click's way imports archives."""
    columns = os.environ.get("COLUMNS", "")
    if not (columns.isascii() and columns.isdigit()):
        try:
            columns = str(os.get_terminal_size().columns)
        except (OSError, ValueError):
            columns = "80"
    return max(40, min(int(columns[:4]), 100) - 2)


def _complete(instruction: str) -> int:
    from click.shell_completion import shell_complete

    return shell_complete(cli, {}, PROGRAM, COMPLETE_VARIABLE, instruction)
