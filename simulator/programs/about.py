"""Labels of a program's activities, for the readers of its timeline."""

from __future__ import annotations

from typing import Literal

from simulator.programs.costs import Bound
from simulator.records import dataclass

Use = Literal["issue", "python", "wait", "mark", "kernel", "copy", "hidden"]


@dataclass(frozen=True, slots=True)
class ProgramLabel:
    """What an activity is: the host issues, computes or waits, a device computes, or data is copied.

    ``hidden``: it only represents a known delay.
    """

    use: Use
    bound: Bound = "given"
    bytes: float = 0.0
    issue_s: float = 0.0  # front end's share of an operator that the host itself computes


@dataclass(frozen=True, slots=True)
class SkippedRepetitions:
    """Repetitions that were skipped at once: their number, and the stream's busy seconds in all, by use and bound."""

    count: int
    busy_s: tuple[tuple[Use, Bound, float], ...]
