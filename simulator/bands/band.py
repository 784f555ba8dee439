"""The interval that holds the truth with a stated probability: :class:`Band`."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["LEVEL", "Band", "band_of"]

LEVEL = 0.8
LEAST_HALF_WIDTH = 0.01  # of a time: repeats of one measurement agree no better


@dataclass(frozen=True, slots=True)
class Band:
    """With probability ``level`` what a clock shows lies from ``low_s`` to ``high_s``.

    The predicted time may lie beside it, where such answers are known to be mostly too fast or too slow.
    """

    level: float
    low_s: float
    high_s: float

    def of_rate(self, time_s: float, rate: float) -> tuple[float, float]:
        """Return the same of a *rate* that is reached where it takes *time_s*, the lower first."""
        return rate * time_s / self.high_s, rate * time_s / self.low_s


def band_of(time_s: float, low: float, high: float) -> Band:
    """Return the band of *time_s* whose ends are *low* and *high* as logarithms of the ratio to it."""
    lacking = max(0.0, 2 * LEAST_HALF_WIDTH - (math.exp(high) - math.exp(low)))
    return Band(LEVEL, time_s * (math.exp(low) - lacking / 2), time_s * (math.exp(high) + lacking / 2))
