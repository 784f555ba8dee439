"""Summary statistics of relative errors."""

from __future__ import annotations

import math
from collections.abc import Sequence

from simulator.records import dataclass


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of ``n`` rows as fractions: 0.1 is 10 %.

    ``median_ape``, ``p90_ape`` and ``mean_ape`` are statistics of the absolute relative error; ``bias`` is the mean of
    the signed one, positive where predictions are too slow.  All are None where n is 0.
    """

    n: int
    median_ape: float | None
    p90_ape: float | None
    mean_ape: float | None
    bias: float | None


def relative_error(predicted_s: float, measured_s: float) -> float:
    """Return (predicted - measured) / measured."""
    return (predicted_s - measured_s) / measured_s


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the percentile of the ascending values *ordered* at *share* (0 to 1), interpolated linearly.

    Of n values, it is at index (n - 1) * share (definition 7 of Hyndman and Fan, Sample quantiles in statistical
    packages, 1996).
    """
    place = (len(ordered) - 1) * share
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summarise(errors: Sequence[float]) -> Errors:
    """Return the statistics of signed relative *errors*."""
    n = len(errors)
    if n == 0:
        return Errors(0, None, None, None, None)
    absolute = sorted(abs(error) for error in errors)
    return Errors(
        n, percentile(absolute, 0.5), percentile(absolute, 0.9), math.fsum(absolute) / n, math.fsum(errors) / n
    )


def weighted_quantile(ordered: Sequence[tuple[float, float]], share: float) -> float:
    """Return the least of ascending (value, weight) pairs at which *share* of the weight is reached; NaN for none."""
    whole = math.fsum(weight for _, weight in ordered)
    passed = 0.0
    for value, weight in ordered:
        passed += weight
        if passed >= share * whole - 1e-12:
            return value
    return ordered[-1][0] if ordered else math.nan
