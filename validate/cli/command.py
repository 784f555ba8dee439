"""A command of ``validate``: a function whose annotated parameters are its options, and its docstring the help."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import typer

from simulator.cli.option import EPILOG, SETTINGS
from validate.cli.options import Debug

F = TypeVar("F", bound=Callable[..., int | None])


def command_named(name: str, epilog: str = EPILOG, **settings: Any) -> Callable[[F], F]:
    """Return a decorator for the function of the command *name*: its file's ``app`` runs it.

    The function returns the exit status, or None.  ``--debug`` is added; console/run.py reads it from the arguments.
    """

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
        app = typer.Typer(**SETTINGS)
        app.command(name, epilog=epilog, **settings)(run)
        vars(sys.modules[function.__module__])["app"] = app
        return function

    return declared
