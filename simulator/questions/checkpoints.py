"""Checkpoints of a run: :class:`CheckpointQuestion`."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CheckpointQuestion"]


@dataclass(frozen=True, slots=True)
class CheckpointQuestion:
    """A run that fails once in ``mtbf_s`` on average, and resumes from its last checkpoint.

    ``every_steps``: steps between checkpoints; None: the best interval.  ``write_s``: seconds to write a checkpoint,
    during which training stops; None: the time of the first disk.  ``restart_s``: seconds from a failure to the first
    step.
    """

    mtbf_s: float
    every_steps: int | None = None
    write_s: float | None = None
    restart_s: float = 0.0
