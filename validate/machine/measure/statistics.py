"""The median of repeated timings and its confidence interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb, sqrt
from statistics import NormalDist

CONFIDENCE = 0.95
_MANY = 1000  # number of samples above which the normal approximation replaces exact counting
FEWEST = 6  # fewest samples whose whole range covers the median with CONFIDENCE


@dataclass(frozen=True, slots=True)
class Interval:
    """The median of samples with its 95 % confidence interval, in the samples' unit."""

    median: float
    low: float
    high: float
    samples: int
    ran_dry: bool = False  # whether the device waited for the host within samples that should exclude host time

    @property
    def relative(self) -> float:
        """Return half the width of the interval as a fraction of the median; infinite with fewer than six samples."""
        if self.samples < FEWEST or self.median <= 0:
            return float("inf")
        return (self.high - self.low) / 2 / self.median


def median_interval(samples: Sequence[float]) -> Interval:
    """Return the median of *samples* and its confidence interval, whose ends are samples.

    No distribution is assumed.  Each sample lies below the true median with probability 1/2, so the interval from the
    k-th smallest to the k-th greatest sample misses it as often as fewer than k of n fair coins show the same side (the
    sign test's interval, Conover, Practical Nonparametric Statistics, section 3.2).  With fewer than six samples the
    interval is the whole range.

    Raises ValueError without samples.
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
    """Return the most samples outside the interval per side that keep the miss rate there to (1 - CONFIDENCE) / 2."""
    if n > _MANY:  # normal approximation of the binomial, half a count on the safe side
        return int(n / 2 - NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * sqrt(n) / 2 - 0.5)
    limit = (1 - CONFIDENCE) / 2 * 2**n
    tail, outside = 1, 0  # of 2^n equally likely outcomes, one has all samples above the median
    while outside < (n - 1) // 2:
        tail += comb(n, outside + 1)
        if tail > limit:
            break
        outside += 1
    return outside
