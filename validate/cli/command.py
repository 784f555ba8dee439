"""A command of ``validate``: a function whose annotated parameters are its options, and its docstring the help."""

import inspect
import shlex
import sys
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, TypeVar

import typer

from simulator.cli.written import EPILOG, SETTINGS
from simulator.errors import InputError

CHECK_EPILOG = EPILOG.replace("2 usage or input,", "2 usage or input, 3 slower than healthy logs,")
Text = str | None
Texts = list[str] | None  # a repeatable option


def positional(metavar: str, text: str) -> Any:
    """Return an argument that help shows as *metavar*, described by *text*."""
    return typer.Argument(metavar=metavar, help=text)


def value(metavar: str, text: str, *names: str) -> Any:
    """Return an option shown with *metavar* and *text* in help; *names* default to that of the parameter."""
    return typer.Option(*names, metavar=metavar, help=text)


def flag(name: str, text: str) -> Any:
    """Return the switch *name*, described by *text*."""
    return typer.Option(name, help=text)


Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors on standard error.")]
Debug = Annotated[bool, flag("--debug", "Show the traceback of an error.")]
Jobs = Annotated[Text, value("COUNT", "Parallel processes.  [default: one for each core]")]
Json = Annotated[bool, flag("--json", "Print one JSON document; errors are fractions.")]
Trust = Annotated[str, value("A,B", "Trust grades that count in errors; others are only predicted.")]
Calibration = Annotated[Text, value("FILE", "Use a calibration that validate calibrate wrote.")]


def command_again(command: str, *arguments: str, **options: Any) -> str:
    """Return the shell command that gives *arguments* and those of *options* that are set, each as often as it is."""
    words = ["validate", command, *arguments]
    for name, given in options.items():
        for each in given if isinstance(given, list | tuple) else (given,):
            words += [f"--{name.replace('_', '-')}", each] if each is not None else []
    return shlex.join(words)


F = TypeVar("F", bound=Callable[..., int | None])


def command(name: str, epilog: str = EPILOG, **settings: Any) -> Callable[[F], F]:
    """Return a decorator for the function of the command *name*: its file's ``app`` runs it.

    The function returns the exit status, or None.  ``of`` among *settings* is the group of a command within a command.
    ``--debug`` is added; console/run.py reads it from the arguments.
    """
    commands: typer.Typer | None = settings.pop("of", None)

    def declared(function: F) -> F:
        @wraps(function)
        def run(**given: Any) -> None:
            given.pop("debug", None)
            if status := function(**given):
                raise typer.Exit(status)

        debug = inspect.Parameter("debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Debug)
        parameters = {**inspect.signature(function, eval_str=True).parameters, "debug": debug}
        run.__signature__ = inspect.Signature([*parameters.values()])  # type: ignore[attr-defined]
        run.__annotations__ = {**function.__annotations__, "debug": Debug}
        app = commands or typer.Typer(**SETTINGS)
        app.command(name, epilog=epilog, **settings)(run)
        vars(sys.modules[function.__module__])["app"] = app
        return function

    return declared


def group_of_commands(name: str, text: str) -> typer.Typer:
    """Return a command that only has commands of its own, described by *text*."""
    app = typer.Typer(name=name, help=text, epilog=EPILOG, **SETTINGS)

    @app.callback(invoke_without_command=True)
    def group(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            known = [command.name or "" for command in app.registered_commands]
            raise InputError(f"{name}: a command is needed: {', '.join(known)} (--help)")

    group.__doc__ = text
    return app
