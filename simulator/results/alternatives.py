"""Faster alternatives: the same step with one change, simulated."""

from __future__ import annotations

from simulator.records import dataclass

NOT_TRIED = "no changes tried: each takes as long to simulate as this step; ask for one, as --precision or --batch"

WORTH_SAYING = 1.03  # least speed-up worth mentioning


@dataclass(frozen=True, slots=True)
class Alternative:
    """A change, after which a step has ``samples`` on a device; the time is for as many as the original step has."""

    change: str
    step_time_s: float
    fits: bool
    samples: int
