"""The command line ``validate``: ``options.yaml`` declares each command, whose file is imported when it runs."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

from simulator import __version__
from simulator.cli.written import CONTEXT, EPILOG, SETTINGS, Option, declared, with_options
from simulator.console import later
from simulator.console.run import run_app, run_process
from simulator.errors import InputError
from simulator.package_data import own_data
from validate.cli.command import Given

__all__ = ["app", "main"]
COMMANDS: Mapping[str, Any] = own_data("validate.cli", "options.yaml")["commands"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, with *arguments* or those of the process, and exit."""
    if arguments is None:
        run_process(lambda: run_app(app, "validate"))
    sys.exit(run_app(app, "validate", arguments))


def add_commands(app: typer.Typer, commands: Mapping[str, Any]) -> None:
    """Add *commands*, or groups of them, to *app*; what answers one is imported when it runs."""
    for name, told in commands.items():
        if "commands" in told:
            group = typer.Typer(name=name, help=told["help"], epilog=EPILOG, **SETTINGS)
            add_commands(group, told["commands"])
            group.callback(invoke_without_command=True)(_needing(f"{name}: ", told["commands"]))
            app.add_typer(group)
        else:
            options = declared(told["options"])
            how = {"epilog": told.get("epilog", EPILOG), "context_settings": told.get("context_settings")}
            answer = with_options(_answered(told["answer"], options), options, CONTEXT)
            app.command(name, help=told["help"], **how)(answer)


def _answered(by: str, options: Mapping[str, Option]) -> Callable[..., None]:
    def answer(context: typer.Context, **given: Any) -> None:
        given |= {name: tuple(given[name] or ()) for name, option in options.items() if option.several}
        if status := later(f"validate.cli.{by}")(Given(others=tuple(context.args), **given)):
            raise typer.Exit(status)

    return answer


def _needing(where: str, known: Iterable[str]) -> Callable[[typer.Context], None]:
    def group(context: typer.Context) -> None:
        check_named(context, where, known)

    return group


def check_named(context: typer.Context, where: str, known: Iterable[str]) -> None:
    """Raise InputError at *where*, a group, if none of its commands *known* was named."""
    if context.invoked_subcommand is None:
        raise InputError(f"{where}a command is needed: {', '.join(known)} (--help)")


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
