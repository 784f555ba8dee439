"""The command line ``simulate``."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

__all__ = ["COMMANDS", "LISTS", "main", "run"]

_SEARCHES = "simulator.cli.search_app"
LISTS = ("machines", "networks", "parts", "strategies")
COMMANDS = {
    "best": _SEARCHES,
    "scale": _SEARCHES,
    "scenario": "simulator.cli.scenario_app",
    **dict.fromkeys(LISTS, "simulator.cli.list_app"),
}
"""A first word that asks for something else than a simulation, and the module with its options."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run ``simulate`` with *arguments* and return the exit code; a first word may ask for something of ``COMMANDS``.

    Where a shell asks what may follow, that is printed.
    """
    from simulator.console.run import run_app

    given = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None and "_SIMULATE_COMPLETE" in os.environ:
        from simulator.cli.complete import written_so_far

        return run_app(_app(written_so_far()), "simulate", [])
    return run_app(_app(given), "simulate", given, COMMANDS)


def _app(given: Sequence[str]) -> typer.Typer:
    """Return the options of what *given* asks for."""
    found: typer.Typer = import_module(COMMANDS.get(given[0] if given else "", "simulator.cli.app")).app
    return found


def main() -> None:
    """Run ``simulate`` with the arguments of the process and leave it.

    Plans of many flows stay until the end: looking for garbage among them as often as Python does takes a sixth of
    the time.
    """
    gc.set_threshold(100_000, 20, 20)
    raise SystemExit(run())
