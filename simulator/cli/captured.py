"""A command run within this process, and its output."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Captured:
    """The exit status of a command, and the text of its output streams."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any] | None:
        """The JSON object on standard output, or None."""
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
    """Run ``simulate`` with *arguments* and return its status and output; an interrupt is passed on."""
    from simulator.cli import run
    from simulator.console.run import INTERRUPTED

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run(arguments)
    if status == INTERRUPTED:
        raise KeyboardInterrupt
    return Captured(status, out.getvalue(), err.getvalue())
