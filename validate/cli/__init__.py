"""The command line ``validate``: options are declared in ``app.py``; each command runs from the file of its name."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from simulator.console.run import run_app, run_process
from validate.cli.app import app

__all__ = ["app", "main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, with *arguments* or those of the process, and exit."""
    if arguments is None:
        run_process(lambda: run_app(app, "validate"))
    sys.exit(run_app(app, "validate", arguments))
