"""The command line ``validate``: ``options.yaml`` declares each command, whose file is imported when it runs."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from simulator import __version__
from simulator.cli.written import EPILOG, SETTINGS
from simulator.console.run import run_app, run_process
from validate.cli.command import COMMANDS, add_commands, check_named

__all__ = ["app", "main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, with *arguments* or those of the process, and exit."""
    if arguments is None:
        run_process(lambda: run_app(app, "validate"))
    sys.exit(run_app(app, "validate", arguments))


_TOLD = (
    *("run", "compare", "check", "trace", "describe", "score", "table", "blind"),
    *("calibrate", "certify", "design", "import", "cluster", "fit", "bands"),
)
app = typer.Typer(
    name="validate", help="Compare predicted times with measured ones, and measure them.", epilog=EPILOG, **SETTINGS
)


@app.callback(invoke_without_command=True)
def _validate(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False
) -> None:
    """Compare predicted times with measured ones, and measure them."""
    if version:
        typer.echo(f"validate {__version__}")
        raise typer.Exit
    check_named(context, "", _TOLD)


add_commands(app, COMMANDS)
