"""Time a call until the median is known well enough: the one loop that all timed cases run through."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from validate.measure.statistics import FEWEST, Interval, median_interval

__all__ = ["Effort", "Stopwatch", "time_call"]

Call = Callable[[int], object]
"""Runs the workload once; its argument counts calls, to rotate buffers by."""


class Stopwatch(Protocol):
    """Times calls on one device."""

    def sample(self, call: Call, calls: int) -> float:
        """Return the seconds of *calls* calls, all of them done."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long a figure is worked at.

    Attributes
    ----------
    interval : float
        Enough is known when half the confidence interval is at most this fraction of the median.
    sample_s : float
        A sample holds so many calls that it lasts at least this long: the clock's steps (0.5 us of CUDA
        events) and what it costs itself are then below one percent.
    warmup_s : float
        Calls that do not count: libraries choose kernels, clocks rise, caches fill.
    longest_s : float
        After this time what is known is taken, if samples are enough for an interval.
    most_samples : int
        Likewise.

    """

    interval: float = 0.01
    sample_s: float = 200e-6
    warmup_s: float = 0.02
    longest_s: float = 1.5
    most_samples: int = 200


def time_call(watch: Stopwatch, call: Call, effort: Effort, *, one_by_one: bool = False, at_least: int = 1) -> Interval:
    """Return the seconds of one *call*: the median over samples, with its interval.

    *one_by_one* times every call alone, so that each waits for what comes before it; otherwise a
    sample holds *at_least* so many calls.
    """
    started = time.perf_counter()
    calls = 1 if one_by_one else at_least
    one_s = watch.sample(call, calls) / calls  # the first call builds, compiles and chooses
    one_s = min(one_s, watch.sample(call, calls) / calls)
    while True:
        if not one_by_one:
            calls = max(at_least, _count(one_s, effort.sample_s))
        if time.perf_counter() - started >= effort.warmup_s:
            break
        one_s = min(one_s, watch.sample(call, calls) / calls)
    samples: list[float] = []
    look = FEWEST
    while True:
        samples.append(watch.sample(call, calls) / calls)
        n, elapsed_s = len(samples), time.perf_counter() - started
        if n >= FEWEST and (n >= effort.most_samples or elapsed_s >= effort.longest_s):
            break
        if n >= look:  # seldom: each look sorts the samples, and many looks stop at a lucky interval
            if median_interval(samples).relative <= effort.interval:
                break
            look = n + max(2, n // 4)
        if elapsed_s >= 4 * effort.longest_s:  # a call of many seconds: its few samples are taken
            break
    return median_interval(samples)


def _count(one_s: float, sample_s: float) -> int:
    """Return how many calls last *sample_s*: a power of two, so that few numbers of calls are captured in graphs."""
    return 1 << max(0, min(13, math.ceil(math.log2(sample_s / max(one_s, 1e-8)))))
