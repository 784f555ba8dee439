"""What a user gave a command, and the options that ``options.yaml`` declares for each."""

import json
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import typer

from simulator.cli.written import EPILOG, OPTIONS, SETTINGS, Option, declared_option, with_options
from simulator.console import later
from simulator.console.run import say
from simulator.console.style import Style, choose_style
from simulator.errors import InputError, one_line
from simulator.package_data import own_data
from simulator.records import replace
from validate.cli.words import print_result

COMMANDS: Mapping[str, Any] = own_data("validate.cli", "options.yaml")["commands"]


class Given(SimpleNamespace):
    """The values of a command's options, by name, and the ``others``: words that are no option of it."""

    def answer(self, document: Any, text: Callable[[Style], str]) -> None:
        """Print an answer: *document* as JSON if ``--json`` is given, or else its *text* in standard output's style."""
        whole = json.dumps(document, indent=2, allow_nan=False) + "\n" if self.json else text(choose_style(sys.stdout))
        print_result(whole)

    def remark(self, lines: Iterable[str]) -> None:
        """Print remarks on standard error, one per line, unless ``--quiet`` is given."""
        for line in () if self.quiet else lines:
            say(line)

    def wrote(self, option: str) -> list[str]:
        """Return the remark that the file of *option* is written, if one was asked for."""
        path = getattr(self, option)
        return [] if path is None else [f"wrote {one_line(path)}"]

    def again(self, command: str, *arguments: str, options: str) -> str:
        """Return the shell command that gives *arguments* and those of *options* that are set, each as often as it is.

        *options* are names with spaces between, each ``name=option`` where the command line spells it otherwise.
        """
        words = ["validate", command, *arguments]
        for each in options.split():
            name, _, option = each.partition("=")
            given = getattr(self, name)
            for text in given if isinstance(given, tuple) else (given,):
                words += [f"--{(option or name).replace('_', '-')}", text] if text is not None else []
        return shlex.join(words)


def declared(told: Mapping[str, Any]) -> dict[str, Option]:
    """Return the options of the command that *told* declares: its own, or simulate's, with another help if it says."""
    found = {}
    for name, each in told["options"].items():
        if isinstance(each, dict):
            found[name] = declared_option(each)
        else:
            found[name] = OPTIONS[name] if each is None else replace(OPTIONS[name], help=each, usual="")
    return found


def add_commands(app: typer.Typer, commands: Mapping[str, Any]) -> None:
    """Add *commands*, or groups of them, to *app*; what answers one is imported when it runs."""
    for name, told in commands.items():
        if "commands" in told:
            group = typer.Typer(name=name, help=told["help"], epilog=EPILOG, **SETTINGS)
            add_commands(group, told["commands"])
            group.callback(invoke_without_command=True)(_needing(f"{name}: ", told["commands"]))
            app.add_typer(group)
        else:
            options = declared(told)
            how = {"epilog": told.get("epilog", EPILOG), "context_settings": told.get("context_settings")}
            answer = with_options({}, "context", *options, **options)(_answered(told["answer"], options))
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
