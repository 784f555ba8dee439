"""Options as ``options.yaml`` declares them, and the parameters by which commands take them: :func:`with_options`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from simulator.package_data import own_data
from simulator.records import dataclass, replace
from simulator.spelling import word_of

_NAMED, _REST = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD
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
DECLARED: Mapping[str, Any] = own_data("simulator.cli", "options.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """What help shows of an option, and who reads it.

    - ``help``: what it does.
    - ``value``: its value in the help; a switch has none.
    - ``default``: what holds where nothing is said; the type of a value is that of its default, or text.
    - ``several``: it may be repeated.
    - ``group``: the title above it in the help.
    - ``complete``: what completes its value (:mod:`simulator.cli.complete`).
    - ``short``: its short spelling.
    - ``read_by``: the kinds of question that read it; by default those of its group, and all if that names none.
    - ``says_too``: another option that says the same.
    - ``listed``: the value is a list with commas, in Python also a list.
    - ``usual``: what holds where nothing is said, if that is no default.
    - ``version``: an example of a value that a number would change: 2.20 is the number 2.2.
    - ``is_argument``: the value stands alone.
    """

    help: str
    value: str = ""
    default: Any = None
    several: bool = False
    group: str = ""
    complete: str = ""
    short: str = ""
    read_by: tuple[str, ...] = ()
    says_too: str = ""
    listed: bool = False
    usual: str = ""
    version: str = ""
    is_argument: bool = False


def declared_option(told: Mapping[str, Any], **more: Any) -> Option:
    """Return the option that *told* declares, with *more* said of it."""
    usual = () if "several" in told else None if "value" in told else False
    return Option(**{"default": usual, **told, **more})


def with_options(known: Mapping[str, Option], *names: str, **said: str | Option) -> Callable[[Callable[..., Any]], Any]:
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
        found = []
        for name in names:
            other = said.get(name)
            declared = replace(known[name], help=other, usual="") if isinstance(other, str) else other
            found.append(own[name] if name in own else _parameter(name, declared or known[name]))
        run.__signature__ = inspect.Signature(found)  # type: ignore[attr-defined]  # what inspect reads first
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in found}
        return run

    return decorate


def _parameter(name: str, said: Option) -> inspect.Parameter:
    """Return the parameter by which Typer reads the option *name*."""

    def complete(incomplete: str) -> list[str]:
        from simulator.cli.complete import completed

        return completed(said.complete, incomplete)

    word = word_of(name)
    shown: dict[str, Any] = {
        "metavar": said.value or None,
        "help": said.help,
        "show_default": said.usual or True,
        "autocompletion": complete if said.complete else None,
    }
    if said.is_argument:
        how = typer.Argument(**shown)
    else:
        words = [f"{word}/--no-{word[2:]}" if said.default is True else word, said.short]
        how = typer.Option(*filter(None, words), **shown)
    kind: Any = list[str] | None if said.several else str | None if said.default is None else type(said.default)
    default = None if said.several else said.default
    return inspect.Parameter(name, _NAMED, default=default, annotation=Annotated[kind, how])
