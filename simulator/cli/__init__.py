"""The command line ``simulate``."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main", "run"]


def run(arguments: Sequence[str] | None = None) -> int:
    """Run ``simulate`` with *arguments* and return the exit code."""
    from simulator.cli.app import app
    from simulator.console.run import run_app

    return run_app(app, "simulate", arguments)


def main() -> None:
    """Run ``simulate`` with the arguments of the process and leave it."""
    raise SystemExit(run())
