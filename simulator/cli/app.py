"""The options of ``simulate``.  Their code is imported only when used."""

from typing import Any

import click

from simulator.cli import COMMANDS
from simulator.cli.written import DECLARED, GROUPS, OPTIONS, command_of, written_of


class GroupedCommand(click.Command):
    """A command with its options grouped in the help."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Return completions; the first word may also be a subcommand."""
        from click.core import ParameterSource
        from click.shell_completion import CompletionItem

        found: list[Any] = super().shell_complete(ctx, incomplete)
        if any(ctx.get_parameter_source(name) == ParameterSource.COMMANDLINE for name in ctx.params):
            return found
        return [*found, *(CompletionItem(name) for name in COMMANDS if name.startswith(incomplete))]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by group."""
        records = {p.name if p in self.params else "help": p.get_help_record(ctx) for p in self.get_params(ctx)}
        for title, (example, names) in GROUPS.items():
            with formatter.section(title):
                formatter.write_text(f"simulate {example}")
                formatter.write_paragraph()
                formatter.write_dl([record for name in names if (record := records[name]) is not None])


def ask_simulation(**given: Any) -> Any:
    """Return what the options *given* ask for; the version and a shell's script are printed."""
    if given.pop("version"):
        from simulator import __version__

        click.echo(f"simulate {__version__}")
        return None
    shell = given.pop("completion")
    if shell is not None:
        from simulator.cli.complete import script

        click.echo(script(app, shell, "simulate"))
        return None
    from simulator.cli.output import ask

    return ask(written_of(given)[0])


app = command_of("simulate", ask_simulation, OPTIONS, GroupedCommand, help=DECLARED["help"])
