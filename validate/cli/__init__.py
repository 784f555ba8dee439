"""The command line ``validate``: each command is declared in the file of its name, imported when it is named."""

import sys
from collections.abc import Sequence
from importlib import import_module
from keyword import iskeyword
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from simulator import __version__
from simulator.cli.written import EPILOG, SETTINGS
from simulator.console.run import run_app, run_process
from simulator.errors import InputError

__all__ = ["app", "main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, with *arguments* or those of the process, and exit."""
    if arguments is None:
        run_process(lambda: run_app(app, "validate"))
    sys.exit(run_app(app, "validate", arguments))


_SHOWN = (
    *("score", "fit", "bands", "calibrate", "compare", "run", "cluster", "describe", "check", "design", "certify"),
    *("trace", "import", "blind", "table"),
)
_TOLD = (
    *("run", "compare", "check", "trace", "describe", "score", "table", "blind"),
    *("calibrate", "certify", "design", "import", "cluster", "fit", "bands"),
)


class _Commands(dict[str, Any]):
    """The commands by name; None stands for one that was not asked for yet."""

    def __getitem__(self, name: str) -> Any:
        if super().__getitem__(name) is None:
            self[name] = typer.main.get_command(import_module(f"validate.cli.{name}{'_' * iskeyword(name)}").app)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default

    def items(self) -> Any:
        return {name: self[name] for name in self}.items()


class _Group(TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands(dict.fromkeys(_SHOWN))


app = typer.Typer(
    name="validate",
    cls=_Group,
    help="Compare predicted times with measured ones, and measure them.",
    epilog=EPILOG,
    **SETTINGS,
)


@app.callback(invoke_without_command=True)
def _validate(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False
) -> None:
    """Compare predicted times with measured ones, and measure them."""
    if version:
        typer.echo(f"validate {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        raise InputError(f"a command is needed: {', '.join(_TOLD)} (--help)")
