"""The options of ``simulate``.  Their code is imported only when used."""

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand

from simulator.cli import COMMANDS
from simulator.cli.written import EPILOG, GROUPS, OPTIONS, SETTINGS, with_options, written_of

app = typer.Typer(**SETTINGS)


class GroupedCommand(TyperCommand):
    """A command with its options grouped in the help."""

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Return completions; the first word may also be a subcommand."""
        found: list[Any] = super().shell_complete(ctx, incomplete)
        if any(getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE" for name in ctx.params):
            return found
        # Typer either bundles Click or uses the installed one.
        item = import_module(f"{type(ctx).__module__.rpartition('.')[0]}.shell_completion").CompletionItem
        return [*found, *(item(name) for name in COMMANDS if name.startswith(incomplete))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options by group."""
        records = {str(p.name): record for p in self.get_params(ctx) if (record := p.get_help_record(ctx)) is not None}
        for title, (example, names) in GROUPS.items():
            with formatter.section(title):
                formatter.write_text(f"simulate {example}")
                formatter.write_paragraph()
                formatter.write_dl([records[name] for name in names])


def ask_simulation(**given: Any) -> Any:
    """Predict the time of a training step or an exchange, and what limits it.

    simulate --topology p3.16xlarge.yaml --strategy ring

    simulate --topology p3.16xlarge --workload resnet50 --batch 64

    Also: simulate best (layout search), run (days and price of a whole run), scale (scaling curve), scenario (ready
    examples); machines, networks, parts, strategies (lists).
    """
    if given.pop("version"):
        from simulator import __version__

        typer.echo(f"simulate {__version__}")
        return None
    shell = given.pop("completion")
    if shell is not None:
        from simulator.cli.complete import SHELLS, script
        from simulator.cli.options import parse_choice

        typer.echo(script(parse_choice("completion", shell, SHELLS)))
        return None
    from simulator.cli.output import ask

    return ask(written_of(given)[0])


app.command("simulate", epilog=EPILOG, cls=GroupedCommand)(with_options(ask_simulation, OPTIONS))
