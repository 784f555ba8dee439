"""The interval that contains the truth with a stated probability: :class:`Band`."""

from __future__ import annotations

import math
from dataclasses import dataclass

LEVEL = 0.8
LEAST_HALF_WIDTH = 0.01  # relative to the time: repeated measurements agree no better


@dataclass(frozen=True, slots=True)
class Band:
    """The interval from ``low_s`` to ``high_s`` that contains the measured time with probability ``level``.

    The predicted time may lie outside, if such predictions are known to be mostly too fast or too slow.
    """

    level: float
    low_s: float
    high_s: float

    def of_rate(self, time_s: float, rate: float) -> tuple[float, float]:
        """Return the (low, high) band of a *rate* whose predicted value corresponds to the predicted time *time_s*."""
        return rate * time_s / self.high_s, rate * time_s / self.low_s


def band_of(time_s: float, low: float, high: float) -> Band:
    """Return the band of *time_s*, given its ends as logarithms of (measured / predicted).

    It is widened to at least twice ``LEAST_HALF_WIDTH``.
    """
    lacking = max(0.0, 2 * LEAST_HALF_WIDTH - (math.exp(high) - math.exp(low)))
    return Band(LEVEL, time_s * (math.exp(low) - lacking / 2), time_s * (math.exp(high) + lacking / 2))
