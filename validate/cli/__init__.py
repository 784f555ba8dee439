"""The command line ``validate``: options are declared in ``app.py``; each command runs from the file of its name."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from simulator.console.run import collect_rarely, run_app
from validate.cli.app import app

__all__ = ["app", "main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    collect_rarely()
    sys.exit(run_app(app, "validate", arguments))
