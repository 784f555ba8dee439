"""A command run within this process, and its answer."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from typing import Any

from simulator.cli import read
from simulator.cli.output import Asked
from simulator.console.run import INTERRUPTED, guarded
from simulator.records import dataclass


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """The exit status of a command, its answer as in ``--json``, and its remarks or errors, a line each."""

    status: int
    document: dict[str, Any] | None
    said: list[str]


def captured(arguments: Sequence[str]) -> CommandOutput:
    """Answer ``simulate`` with *arguments*, and write its files; an interrupt is passed on."""
    found: list[dict[str, Any]] = []

    def answer() -> int:
        asked = read(arguments)
        if isinstance(asked, Asked):
            answers = asked.answered()
            found.append(answers.document())
            answers.check()
        return 0

    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        status = guarded("simulate", answer)
    if status == INTERRUPTED:
        raise KeyboardInterrupt
    lines = [line.removeprefix("simulate: ") for line in said.getvalue().splitlines() if line.strip()]
    return CommandOutput(status, found[0] if found else None, lines)
