"""A command run here, by the way that every command goes, and what it prints."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Captured", "captured"]


@dataclass(frozen=True, slots=True)
class Captured:
    """The exit status, and the text of both streams."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any] | None:
        """The JSON object on standard output; None where there is none."""
        try:
            found = json.loads(self.out)
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

    @property
    def errors(self) -> list[str]:
        """The lines of standard error, without the program's name."""
        return [line.removeprefix("simulate: ") for line in self.err.splitlines() if line.strip()]


def captured(arguments: Sequence[str]) -> Captured:
    """Return what ``simulate`` with *arguments* does and prints; an interrupt goes through."""
    from simulator.cli import run
    from simulator.console.run import INTERRUPTED

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run(arguments)
    if status == INTERRUPTED:
        raise KeyboardInterrupt
    return Captured(status, out.getvalue(), err.getvalue())
