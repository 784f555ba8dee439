"""Faster alternatives: the same step with one change, simulated."""

from __future__ import annotations

from simulator.records import dataclass

NOT_TRIED = "no changes tried: each takes as long to simulate as this step; ask for one, as --precision or --batch"

WORTH_SAYING = 1.03  # least speed-up worth mentioning


@dataclass(frozen=True, slots=True)
class Alternative:
    """A change; the time is for as many samples as the original step has.

    With it, a micro-batch has ``batch`` samples, and a step ``samples`` on a device.
    """

    change: str
    step_time_s: float
    fits: bool
    batch: int
    samples: int
