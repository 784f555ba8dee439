"""The command line ``validate``: ``options.yaml`` declares each command, whose file is imported when it runs."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import click

from simulator import __version__
from simulator.cli.written import DECLARED, HELP, Option, command_of, declared
from simulator.console import later
from simulator.console.run import run_app, run_process
from simulator.errors import InputError, word_of
from simulator.questions.checks import refuse_all
from simulator.records import own_data
from validate.cli.command import Given

__all__ = ["app", "main"]
_DECLARED = own_data("validate.cli", "options.yaml")
COMMANDS: Mapping[str, Any] = {name: _DECLARED["commands"][name] for name in _DECLARED["order"].split()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, with *arguments* or those of the process, and exit."""
    if arguments is None:
        if asked := os.environ.get("_VALIDATE_COMPLETE"):
            sys.exit(later("simulator.cli.complete:answer_shell")(asked, lambda _: app, "validate"))
        run_process(lambda: run_app(app, "validate"))
    sys.exit(run_app(app, "validate", arguments))


class CommandGroup(click.Group):
    """Commands, in the order in which they are declared."""

    def __init__(self, name: str, told: str, commands: Mapping[str, Any], **how: Any) -> None:
        settings = {"epilog": DECLARED["epilog"], "context_settings": dict(HELP), "invoke_without_command": True}
        settings |= {"subcommand_metavar": "[COMMAND] [ARGS]...", "callback": partial(self.check_named, f"{name}: ")}
        super().__init__(name, help=told, **{**settings, **how})
        for each, said in commands.items():
            if "commands" in said:
                self.add_command(CommandGroup(each, said["help"], said["commands"]))
            else:
                more = {key: said[key] for key in ("help", "epilog", "context_settings") if key in said}
                options = declared(said["options"])
                answer = _answered(said["answer"], said.get("refuses", ()), options)
                self.add_command(command_of(each, answer, options, **more))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        del ctx
        return list(self.commands)

    def check_named(self, where: str) -> None:
        """Raise InputError at *where* if no command was named."""
        if click.get_current_context().invoked_subcommand is None:
            raise InputError(f"{where}a command is needed: {', '.join(self.commands)} (--help)")


def _answered(by: str, refuses: Iterable[Mapping[str, Any]], options: Mapping[str, Option]) -> Callable[..., Any]:
    def answer(**given: Any) -> Any:
        said = {name: options[name].word or word_of(name) for name, value in given.items() if value}
        refuse_all(_faults(said, refuses))
        return later(f"validate.cli.{by}")(Given(others=tuple(click.get_current_context().args), **given))

    return answer


def _faults(said: Mapping[str, str], refuses: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for rule in refuses:
        if said.keys() >= {*rule.get("given", ())} and said.keys().isdisjoint(rule.get("without", ())):
            yield from () if "each" in rule else (rule["why"],)
            yield from (f"{said[name]}: {rule['why']}" for name in rule.get("each", ()) if name in said)


def _validate(version: bool, completion: str | None) -> None:
    if completion is not None:
        click.echo(later("simulator.cli.complete:script")(app, completion, "validate"))
        click.get_current_context().exit()
    if version:
        click.echo(f"validate {__version__}")
        click.get_current_context().exit()
    app.check_named("")


_VERSION = click.Option(["--version"], is_flag=True, help="Show the version.")
_COMPLETION = click.Option(["--completion"], metavar="SHELL", help="Print the script that completes names in a shell.")
_HELP = "Compare predicted times with measured ones, and measure them."
app = CommandGroup("validate", _HELP, COMMANDS, callback=_validate, params=[_VERSION, _COMPLETION])
