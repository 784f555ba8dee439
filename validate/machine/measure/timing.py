"""Time a call until the median is known well enough: the one loop that all timed cases run through."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from validate.machine.measure.statistics import FEWEST, Interval, median_interval

__all__ = ["Effort", "Stopwatch", "repeated", "time_call"]

Call = Callable[[int], object]
"""Runs the workload once; its argument counts calls, to rotate buffers by."""


class Stopwatch(Protocol):
    """Times calls on one device."""

    def sample(self, call: Call, calls: int) -> float:
        """Return the seconds of *calls* calls, all of them done.

        One that holds calls up until all are issued says in an attribute ``ran_dry`` whether the last sample's were
        not issued in time after all.
        """


@dataclass(frozen=True, slots=True)
class Effort:
    """How long a figure is worked at."""

    interval: float = 0.01  # enough is known when half the confidence interval is at most this fraction of the median
    # a sample holds so many calls that it lasts at least this long: the clock's steps (0.5 us of CUDA events) and what
    # it costs itself are then below one percent
    sample_s: float = 200e-6
    # for so long the device works before anything counts: clocks rise, caches fill.  What libraries build and choose
    # before is not in it
    warmup_s: float = 0.02
    # steady_s, long_s: the same for calls that take *long_s* or longer and compute hard: until the clock is what the
    # power limit leaves, as it is in training
    steady_s: float = 0.15
    long_s: float = 200e-6
    longest_s: float = 1.5  # after this time what is known is taken, if samples are enough for an interval
    most_samples: int = 200  # likewise


def time_call(
    watch: Stopwatch, call: Call, effort: Effort, *, one_by_one: bool = False, at_least: int = 1, hard: bool = False
) -> Interval:
    """Return the seconds of one *call*: the median over samples, with its interval.

    *one_by_one* times every call alone, so that each waits for what comes before it; otherwise a
    sample holds *at_least* so many calls.  *hard* says that it computes as hard as the device can.
    """
    started = time.perf_counter()
    calls = 1 if one_by_one else at_least
    watch.sample(call, calls)  # builds, compiles and chooses
    spent_s = watch.sample(call, calls)
    one_s = spent_s / calls
    while time.perf_counter() - started < effort.longest_s:
        if not one_by_one:
            calls = max(at_least, _count(one_s, effort.sample_s))
        took_s = watch.sample(call, calls)
        spent_s += took_s
        one_s = min(one_s, took_s / calls)
        # A first look holds what a launch costs: calls are enough when so many of them last long enough.
        enough = one_by_one or calls >= _count(one_s, effort.sample_s)
        if enough and spent_s >= (effort.steady_s if hard and one_s >= effort.long_s else effort.warmup_s):
            break
    ran_dry = False

    def sample() -> float:
        nonlocal ran_dry
        took_s = watch.sample(call, calls) / calls
        ran_dry |= bool(getattr(watch, "ran_dry", False))
        return took_s

    found = repeated(sample, lambda: time.perf_counter() - started, effort)
    return replace(found, ran_dry=ran_dry)


def repeated(sample: Callable[[], float], spent_s: Callable[[], float], effort: Effort) -> Interval:
    """Return the median of what *sample* gives, taken again until it is known well enough, or enough time is spent."""
    samples: list[float] = []
    look = FEWEST
    while True:
        samples.append(sample())
        n, elapsed_s = len(samples), spent_s()
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
