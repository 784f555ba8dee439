"""What the activities of a program are of, for those who read its timeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.programs.costs import Bound

__all__ = ["Did", "Passed", "Use"]

Use = Literal["issue", "python", "wait", "mark", "kernel", "copy", "hidden"]


@dataclass(frozen=True, slots=True)
class Did:
    """An activity: the host issues, computes or waits, a device computes, something is copied.

    ``hidden``: it stands for a time that is known, and is nothing by itself.
    """

    use: Use
    bound: Bound = "given"
    bytes: float = 0.0
    issue_s: float = 0.0  # of an operator that the host computes itself, its front end's part


@dataclass(frozen=True, slots=True)
class Passed:
    """Repetitions that passed at once: how many, and for how long the stream was busy in one, by use and bound."""

    count: int
    busy_s: tuple[tuple[Use, Bound, float], ...]
