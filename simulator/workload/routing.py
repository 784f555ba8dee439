"""How many rows experts get: routing that is not balanced, and a capacity beyond which tokens are dropped."""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist
from typing import NamedTuple

_NORMAL = NormalDist()


def largest_of(count: int) -> float:
    """Return the expected largest of *count* normal numbers, in standard deviations (Blom, "Statistical Estimates")."""
    return _NORMAL.inv_cdf((count - 0.375) / (count + 0.25))


class Routing(NamedTuple):
    """The rows of experts: normal, with a standard deviation of ``imbalance`` percent of their mean, an even share.

    ``capacity`` is the most that an expert takes, in percent of an even share; further rows are dropped, and 0 is
    without limit (Lepikhin et al., "GShard", arXiv 2006.16668).  ``padded``: each expert gets as many, some of them
    zeros.
    """

    imbalance: int = 0
    capacity: int = 0
    padded: bool = False

    @property
    def kept(self) -> float:
        """The rows that experts multiply over those that are routed: the mean of what a limit leaves of each expert."""
        limit = self.capacity / 100
        if self.padded or not limit:
            return limit or 1.0
        return limit - self._left_free[0]

    @property
    def spread(self) -> float:
        """The standard deviation of the rows that an expert multiplies, over their mean."""
        if self.padded:
            return 0.0
        if not self.capacity:
            return self.imbalance / 100
        mean, square = self._left_free
        return sqrt(max(0.0, square - mean**2)) / self.kept

    def most(self, experts: int) -> float:
        """Return the rows of the busiest of *experts* over the mean of what they multiply."""
        if self.padded or experts == 1:
            return 1.0
        largest = 1.0 + self.imbalance / 100 * largest_of(experts)
        return min(largest, self.capacity / 100) / self.kept if self.capacity else largest

    @property
    def _left_free(self) -> tuple[float, float]:
        """The mean of what a normal number leaves of a limit c, and that of its square.

        With z = (c - 1) / s these are s (z P(z) + p(z)) and s^2 ((z^2 + 1) P(z) + z p(z)), of the normal density p and
        its integral P.
        """
        spread, limit = self.imbalance / 100, self.capacity / 100
        if not spread:
            free = max(0.0, limit - 1.0)
            return free, free**2
        z = (limit - 1.0) / spread
        below, density = _NORMAL.cdf(z), _NORMAL.pdf(z)
        return spread * (z * below + density), spread**2 * ((z * z + 1.0) * below + z * density)
