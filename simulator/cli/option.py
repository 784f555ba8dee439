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
        The function of :mod:`simulator.cli.complete` that completes its value.
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


@cache
def declared(*groups: Any) -> Mapping[str, tuple[Any, Option, Any]]:
    """Return the default and declaration of each option of *groups*, and its group, by name."""
    return {each.name: (each.default, each.metadata[_OPTION], group) for group in groups for each in fields(group)}


def with_options(known: Mapping[str, tuple[Any, Option, Any]], *names: str, **helps: str) -> Callable[[F], F]:
    """Return a decorator that gives a command the options *names*: its own parameters, and the others as *known*.

    *helps* replace the help of some.
    """

    def decorate(command: F) -> F:
        own = {
            name: parameter.replace(annotation=hint, kind=_NAMED)
            for name, parameter in inspect.signature(command).parameters.items()
            if (hint := get_type_hints(command, include_extras=True).get(name)) and parameter.kind != _REST
        }
        found = [own[name] if name in own else _parameter(name, *known[name][:2], helps.get(name)) for name in names]
        command.__signature__ = inspect.Signature(found)  # type: ignore[attr-defined]  # what inspect reads first
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in found}
        return command

    return decorate


def _parameter(name: str, default: Any, said: Option, text: str | None) -> inspect.Parameter:
    """Return the parameter by which Typer reads an said."""
    words = [word_of(name)]
    if default is True:
        words = [f"{words[0]}/--no-{words[0][2:]}"]
    shown = typer.Option(
        *words,
        *([said.short] if said.short else ()),
        metavar=said.metavar or None,
        help=text or said.help,
        show_default=(text is None and said.usual) or True,
        autocompletion=_completion(said.complete) if said.complete else None,
    )
    several = default == ()
    kind: Any = list[str] | None if several else str | None if default is None else type(default)
    return inspect.Parameter(name, _NAMED, default=None if several else default, annotation=Annotated[kind, shown])


def _completion(name: str) -> Callable[[str], list[str]]:
    """Return the function *name* of :mod:`simulator.cli.complete`, which is loaded when a shell asks."""

    def complete(incomplete: str) -> list[str]:
        from simulator.cli import complete as values

        found: list[str] = getattr(values, name)(incomplete)
        return found

    return complete
