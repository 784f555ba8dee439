"""Checkpoints of a run: :class:`CheckpointQuestion`."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CheckpointQuestion"]


@dataclass(frozen=True, slots=True)
class CheckpointQuestion:
    """A run that fails once in ``mtbf_s`` on average, and goes on from its last checkpoint.

    ``every_steps``: a checkpoint after so many steps; None: as often as is best.  ``write_s``: seconds in which one is
    written and nothing is trained; None: what the first disk takes.  ``restart_s``: from a failure to the first step.
    """

    mtbf_s: float
    every_steps: int | None = None
    write_s: float | None = None
    restart_s: float = 0.0
