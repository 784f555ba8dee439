"""The commands of ``validate`` as they are declared: options here, work in a file of its own, imported when it runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any, get_type_hints

import typer

from validate.cli.options import EPILOG, Texts

app = typer.Typer(
    name="validate",
    help="Compare predicted times with measured ones, and measure them.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EPILOG,
)
_Options = Callable[..., None]


def command(name: str, runs: str, epilog: str = EPILOG, **settings: Any) -> Callable[[_Options], _Options]:
    """Return a decorator for the options of the command *name*; *runs* (file:function) gets them by name.

    That function is imported when it runs.  A repeatable option that was not given is an empty list; words that are no
    options, where *settings* allow them, come as ``others``.  It returns the exit status, or None.
    """

    def declared(options: _Options) -> _Options:
        @wraps(options)
        def run(**given: Any) -> None:
            del given["debug"]  # console/run.py reads it from the arguments
            repeatable = (option for option, kind in get_type_hints(options).items() if kind == Texts)
            given.update((option, given[option] or []) for option in repeatable)
            if "context" in given:
                given["others"] = given.pop("context").args
            file, _, function = runs.partition(":")
            status = getattr(import_module(f"validate.cli.{file}"), function)(**given)
            if status:
                raise typer.Exit(status)

        app.command(name, epilog=epilog, **settings)(run)
        return options

    return declared
