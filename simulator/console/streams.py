"""Standard error, which may be closed or full: what is said there changes neither the answer nor the exit status."""

from __future__ import annotations

import os
import sys
from typing import Any

from simulator.errors import escaped


def say(line: str) -> None:
    """Print *line* on standard error, if that can be written."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(escaped(line) + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        abandon(sys.stderr)


def abandon(stream: Any) -> None:
    """Redirect *stream* to the null device, so that closing it at exit cannot fail again."""
    try:
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, stream.fileno())
        os.close(sink)
    except (OSError, ValueError, AttributeError):
        return
