"""How commands are found and how their help reads: examples first, options in sections."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_FLAGS = 30
"""Columns for an option's name, the same in every section."""


class UnknownCommandError(click.UsageError):
    """A command that does not exist, with the near ones."""


class _NearGroup(click.Group):
    """A group that answers a misspelt command with the near ones."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of the first argument. Raises UnknownCommandError with the near names."""
        name = args[0]
        if name not in self.list_commands(ctx) and not name.startswith("-"):
            raise UnknownCommandError(f"unknown command {name!r}{near(name, self.list_commands(ctx))}", ctx)
        return super().resolve_command(ctx, args)


class LazyGroup(_NearGroup):
    """A group that knows its commands' names and one-line helps without importing them."""

    def __init__(self, *args: Any, rows: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._rows = rows

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table: what people need first stands first."""
        return [*self._rows, *(name for name in super().list_commands(ctx) if name not in self._rows)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command's module."""
        if cmd_name not in self._rows:
            return super().get_command(ctx, cmd_name)
        command: click.Command = import_module(self._rows[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._rows.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Close with one command to try."""
        formatter.write("\nTry: zerocalc compare 70b --dp 64 --gpu 80GB\n")

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Complete command names with their one-line helps, importing none."""
        from click.shell_completion import CompletionItem

        if self._rows and not incomplete.startswith("-"):
            return [
                CompletionItem(n, help=text)
                for n, (_, text) in self._rows.items()
                if n.startswith(incomplete)
            ]
        return super().shell_complete(ctx, incomplete)


def near(name: str, known: Sequence[str]) -> str:
    """`; did you mean 'compare'?`, or nothing when nothing is near."""
    from difflib import get_close_matches

    matches = get_close_matches(name, known, n=2, cutoff=0.5)
    return f"; did you mean {' or '.join(repr(match) for match in matches)}?" if matches else ""


class SectionOption(click.Option):
    """An option that belongs to a section of the help."""

    def __init__(self, *args: Any, section: str = "Options", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section


class _Examples(click.Command):
    """Help that puts examples that run right after the first sentence."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the command does, then its examples."""
        super().format_help_text(ctx, formatter)
        if self.examples:
            formatter.write("\nExamples:\n")
            for example in self.examples:
                formatter.write(f"  {example}\n")


class ExampleGroup(_Examples, _NearGroup):
    """A small group with examples."""


class ExampleCommand(_Examples):
    """A command with examples and its options in sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per group of options in the order of their declaration, all with one indentation."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = None if isinstance(parameter, click.Argument) else parameter.get_help_record(ctx)
            if record is not None:
                sections.setdefault(getattr(parameter, "section", "Help"), []).append(record)
        sections.setdefault("Help", sections.pop("Help", []))
        for name, records in sections.items():
            with formatter.section(name):
                formatter.write_dl(
                    [(flags.ljust(_FLAGS), text) for flags, text in records], col_max=_FLAGS + 2
                )
