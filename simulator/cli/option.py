"""Options, each declared once: as a field with an :class:`Option`, from which commands, help and checks follow."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import Field
from functools import cache, wraps
from typing import Annotated, Any, get_type_hints

import typer

from simulator.records import dataclass, field, fields
from simulator.spelling import word_of

_NAMED, _REST = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD
_OPTION = "option"
SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
EPILOG = (
    "Results go to standard output, everything else to standard error. "
    "Exit codes: 0 ok, 1 the run failed, 2 usage or input, 4 an optional dependency is missing."
)
Said = str | Field[Any]
"""The help of an option where a command says it otherwise, or its declaration there."""


@dataclass(frozen=True, slots=True)
class Option:
    """What help shows of an option, and who reads it.

    - ``metavar``: its value in the help; empty for a switch.
    - ``help``: what it does.
    - ``complete``: what completes its value (:mod:`simulator.cli.complete`).
    - ``short``: its short spelling.
    - ``read_by``: the kinds of question that read it; by default those of its group, and all if that names none.
    - ``says_too``: another option that says the same.
    - ``listed``: the value is a list with commas, in Python also a list.
    - ``usual``: what holds where nothing is said, if that is no default.
    - ``version``: an example of a value that a number would change: 2.20 is the number 2.2.
    - ``is_argument``: the value stands alone.
    """

    metavar: str
    help: str
    complete: str = ""
    short: str = ""
    read_by: tuple[str, ...] | None = None
    says_too: str = ""
    listed: bool = False
    usual: str = ""
    version: str = ""
    is_argument: bool = False


def option(metavar: str, text: str, default: Any = None, **more: Any) -> Any:
    """Return a field that declares an option: a value shown as *metavar*, and *more* of :class:`Option`."""
    return field(default=default, metadata={_OPTION: Option(metavar, text, **more)})


def switch(text: str, default: bool = False, **more: Any) -> Any:
    """Return a field that declares a switch, on or off."""
    return option("", text, default, **more)


def argument(metavar: str, text: str, default: Any = None, **more: Any) -> Any:
    """Return a field that declares a value without an option's name, shown as *metavar*."""
    return option(metavar, text, default, is_argument=True, **more)


@cache
def declared(*groups: Any) -> Mapping[str, tuple[Any, Option, Any]]:
    """Return the default and declaration of each option of *groups*, and its group, by name."""
    return {each.name: (each.default, each.metadata[_OPTION], group) for group in groups for each in fields(group)}


def with_options(
    known: Mapping[str, tuple[Any, Option, Any]], *names: str, **said: Said
) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that gives a command the options *names*: its own parameters, and the others as *known*.

    *said* declares some instead, or replaces their help.  ``debug`` is not passed on: it is read from the arguments
    when errors are shown.
    """

    def decorate(command: Callable[..., Any]) -> Any:
        @wraps(command)
        def run(**given: Any) -> Any:
            given.pop("debug", None)
            return command(**given)

        own = {
            name: parameter.replace(annotation=hint, kind=_NAMED)
            for name, parameter in inspect.signature(command).parameters.items()
            if (hint := get_type_hints(command, include_extras=True).get(name)) and parameter.kind != _REST
        }
        found = [own[name] if name in own else _parameter(name, known, said.get(name)) for name in names]
        run.__signature__ = inspect.Signature(found)  # type: ignore[attr-defined]  # what inspect reads first
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in found}
        return run

    return decorate


def _parameter(name: str, known: Mapping[str, tuple[Any, Option, Any]], other: Said | None) -> inspect.Parameter:
    """Return the parameter by which Typer reads the option *name*, as *known* or as the *other* declares it."""
    if isinstance(other, Field):
        default, said = other.default, other.metadata[_OPTION]
    else:
        default, said, _ = known[name]
    words = [word_of(name)]
    if default is True:
        words = [f"{words[0]}/--no-{words[0][2:]}"]
    shown: dict[str, Any] = {
        "metavar": said.metavar or None,
        "help": other if isinstance(other, str) else said.help,
        "show_default": (not isinstance(other, str) and said.usual) or True,
        "autocompletion": completion_of(said.complete) if said.complete else None,
    }
    several = default == ()
    kind: Any = list[str] | None if several else str | None if default is None else type(default)
    if said.is_argument:
        how = typer.Argument(**shown)
    else:
        how = typer.Option(*words, *([said.short] if said.short else ()), **shown)
    return inspect.Parameter(name, _NAMED, default=None if several else default, annotation=Annotated[kind, how])


def completion_of(what: str) -> Callable[[str], list[str]]:
    """Return the function that completes a name of *what* (:mod:`simulator.cli.complete`), loaded when a shell asks."""

    def complete(incomplete: str) -> list[str]:
        from simulator.cli.complete import completed

        return completed(what, incomplete)

    return complete
