"""The command line ``validate``: what is declared in ``app.py``, and what each command does in a file of its name."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from simulator.console.run import run_app
from validate.cli.app import app

__all__ = ["app", "main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    sys.exit(run_app(app, "validate", arguments))
