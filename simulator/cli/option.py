"""Options, each declared once: as a field with an :class:`Option`, from which commands, help and checks follow."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from simulator.spelling import word_of

_NAMED, _REST = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD
_OPTION = "option"
_Shown = str | tuple[str, str]
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Option:
    """What help shows of an option, and who reads it.

    Parameters
    ----------
    metavar : str
        Its value in the help; empty for a switch.
    help : str
        What it does.
    complete : str
        What completes its value (:mod:`simulator.cli.complete`).
    short : str
        Its short spelling.
    read_by : tuple of str, optional
        The kinds of question that read it; by default those of its group, and all if that names none.
    says_too : str
        Another option that says the same.
    listed : bool
        The value is a list with commas, in Python also a list.
    usual : str
        What holds where nothing is said, if that is no default.
    version : str
        An example of a value that a number would change: 2.20 is the number 2.2.
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


def option(metavar: str, text: str, default: Any = None, **more: Any) -> Any:
    """Return a field that declares an option: a value shown as *metavar*, and *more* of :class:`Option`."""
    return field(default=default, metadata={_OPTION: Option(metavar, text, **more)})


def switch(text: str, default: bool = False, **more: Any) -> Any:
    """Return a field that declares a switch, on or off."""
    return option("", text, default, **more)


def own(metavar: str, text: str, completes: str = "") -> Any:
    """Return how Typer reads an option that one command alone has: a value shown as *metavar*."""
    return typer.Option(metavar=metavar, help=text, autocompletion=completion_of(completes) if completes else None)


@cache
def declared(*groups: Any) -> Mapping[str, tuple[Any, Option, Any]]:
    """Return the default and declaration of each option of *groups*, and its group, by name."""
    return {each.name: (each.default, each.metadata[_OPTION], group) for group in groups for each in fields(group)}


def with_options(
    known: Mapping[str, tuple[Any, Option, Any]], *names: str, **said: str | tuple[str, str]
) -> Callable[[F], F]:
    """Return a decorator that gives a command the options *names*: its own parameters, and the others as *known*.

    *said* replaces the help of some, or their value in the help and the help.
    """

    def decorate(command: F) -> F:
        own = {
            name: parameter.replace(annotation=hint, kind=_NAMED)
            for name, parameter in inspect.signature(command).parameters.items()
            if (hint := get_type_hints(command, include_extras=True).get(name)) and parameter.kind != _REST
        }
        found = [own[name] if name in own else _parameter(name, *known[name][:2], said.get(name)) for name in names]
        command.__signature__ = inspect.Signature(found)  # type: ignore[attr-defined]  # what inspect reads first
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in found}
        return command

    return decorate


def _parameter(name: str, default: Any, said: Option, other: _Shown | None) -> inspect.Parameter:
    """Return the parameter by which Typer reads the option *said*, with what help says of it in its place."""
    metavar, text = other if isinstance(other, tuple) else (said.metavar, other)
    words = [word_of(name)]
    if default is True:
        words = [f"{words[0]}/--no-{words[0][2:]}"]
    shown = typer.Option(
        *words,
        *([said.short] if said.short else ()),
        metavar=metavar or None,
        help=text or said.help,
        show_default=(text is None and said.usual) or True,
        autocompletion=completion_of(said.complete) if said.complete else None,
    )
    several = default == ()
    kind: Any = list[str] | None if several else str | None if default is None else type(default)
    return inspect.Parameter(name, _NAMED, default=None if several else default, annotation=Annotated[kind, shown])


def completion_of(what: str) -> Callable[[str], list[str]]:
    """Return the function that completes a name of *what* (:mod:`simulator.cli.complete`), loaded when a shell asks."""

    def complete(incomplete: str) -> list[str]:
        from simulator.cli.complete import completed

        return completed(what, incomplete)

    return complete
