"""The command line ``simulate``."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

__all__ = ["main", "run"]

_SEARCHES = ("best", "scale")


def run(arguments: Sequence[str] | None = None) -> int:
    """Run ``simulate`` with *arguments* and return the exit code; a first word may ask for a search or a scenario."""
    from simulator.console.run import run_app

    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and given[0] in _SEARCHES:
        from simulator.cli.search_app import app as searches

        return run_app(searches, "simulate", given)
    if given and given[0] == "scenario":
        from simulator.cli.scenario_app import app as scenarios

        return run_app(scenarios, "simulate", given)
    from simulator.cli.app import app

    return run_app(app, "simulate", given)


def main() -> None:
    """Run ``simulate`` with the arguments of the process and leave it.

    Plans of many flows stay until the end: looking for garbage among them as often as Python does takes a sixth of
    the time.
    """
    gc.set_threshold(100_000, 20, 20)
    raise SystemExit(run())
