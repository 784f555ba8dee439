"""The command line ``simulate``."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from simulator.console.run import read_app, run_app, run_process

if TYPE_CHECKING:
    import click

LISTS = ("machines", "networks", "parts", "strategies")
COMMANDS = ("best", "run", "scale", "scenario", "sweep", *LISTS)
"""First words that select a command other than a simulation."""
_MAIN = "simulator.cli.app"
_MODULES = {"": _MAIN, **dict.fromkeys(COMMANDS, "simulator.cli.commands")}


def run(arguments: Sequence[str] | None = None) -> int:
    """Run ``simulate`` with *arguments* and return the exit code; the first word may be one of ``COMMANDS``.

    If a shell asks for completions, they are printed instead.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None and (asked := os.environ.get("_SIMULATE_COMPLETE")):
        from simulator.cli.complete import answer_shell

        return answer_shell(asked, _app, "simulate")
    return run_app(_app(given), "simulate", given, _MODULES)


def read(arguments: Sequence[str]) -> object:
    """Return what ``simulate`` with *arguments* asks, a :class:`~simulator.cli.output.Asked`; raises InputError."""
    return read_app(_app(arguments), "simulate", list(arguments), _MODULES)


def _app(given: Sequence[str]) -> "click.Command":
    found: click.Command = import_module(_MODULES.get(given[0] if given else "", _MAIN)).app
    return found


def main() -> None:
    """Run ``simulate`` with the arguments of the process, and exit."""
    run_process(run)
