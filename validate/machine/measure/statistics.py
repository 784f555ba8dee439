"""The median of repeated timings, and how well it is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb, sqrt
from statistics import NormalDist

__all__ = ["FEWEST", "Interval", "median_interval"]

CONFIDENCE = 0.95
_MANY = 1000  # samples from which coins are not counted one by one
FEWEST = 6  # samples of which the interval from least to greatest covers the median with CONFIDENCE


@dataclass(frozen=True, slots=True)
class Interval:
    """The median of samples and the interval that covers the true one in 95 of 100 cases; all in their unit."""

    median: float
    low: float
    high: float
    samples: int
    ran_dry: bool = False  # the device waited for the host within samples, though the host was to be ahead

    @property
    def relative(self) -> float:
        """Half the width of the interval as a fraction of the median; infinite where too few samples tell."""
        if self.samples < FEWEST or self.median <= 0:
            return float("inf")
        return (self.high - self.low) / 2 / self.median


def median_interval(samples: Sequence[float]) -> Interval:
    """Return the median of *samples* and its confidence interval between two of them.

    No distribution is assumed: each sample lies below the median with probability 1/2, so the
    interval from the k-th smallest to the k-th greatest misses it as often as fewer than k of n
    fair coins show the same side (the sign test's interval, Conover, Practical Nonparametric
    Statistics, section 3.2).  Of fewer than six samples the interval is the whole range.

    Raises ValueError where there are none.
    """
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    n = len(ordered)
    median = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    k = _rank(n)
    return Interval(median, ordered[k], ordered[n - 1 - k], n)


@lru_cache(maxsize=1024)
def _rank(n: int) -> int:
    """Return how many samples lie outside on each side: the most that miss in (1 - CONFIDENCE) / 2 of cases."""
    if n > _MANY:  # the normal distribution that coins tend to, half a coin on the safe side
        return int(n / 2 - NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * sqrt(n) / 2 - 0.5)
    limit = (1 - CONFIDENCE) / 2 * 2**n
    tail, outside = 1, 0  # of one sample, of 2^n cases, all lie above the median
    while outside < (n - 1) // 2:
        tail += comb(n, outside + 1)
        if tail > limit:
            break
        outside += 1
    return outside
