"""Time a call until its median is precise enough: its confidence interval, and the shared loop."""

import math
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import comb, sqrt
from statistics import NormalDist
from typing import NamedTuple, Protocol

CONFIDENCE = 0.95
_MANY = 1000  # number of samples above which the normal approximation replaces exact counting
FEWEST = 6  # fewest samples whose whole range covers the median with CONFIDENCE


class Interval(NamedTuple):
    """The median of samples with its 95 % confidence interval, in the samples' unit."""

    median: float
    low: float
    high: float
    samples: int
    ran_dry: bool = False  # whether the device waited for the host within samples that should exclude host time

    @property
    def relative(self) -> float:
        """Return half the width of the interval as a fraction of the median; infinite with fewer than six samples."""
        return float("inf") if self.samples < FEWEST or self.median <= 0 else (self.high - self.low) / 2 / self.median


def median_interval(samples: Sequence[float]) -> Interval:
    """Return the median of *samples* and its confidence interval, whose ends are samples; ValueError without any.

    The interval from the k-th smallest to the k-th greatest misses the median as often as fewer than k of n fair coins
    show the same side (the sign test's, Conover, Practical Nonparametric Statistics, section 3.2); of fewer than six it
    is the whole range.
    """
    if not samples:
        raise ValueError("no samples")
    ordered, n = sorted(samples), len(samples)
    k = _rank(n)
    return Interval((ordered[(n - 1) // 2] + ordered[n // 2]) / 2, ordered[k], ordered[n - 1 - k], n)


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


Call = Callable[[int], object]  # runs the workload once; the argument numbers the calls, to rotate buffers


class Stopwatch(Protocol):
    """Times calls; of some, ``ran_dry`` says whether any was issued late, ``spent_s`` what counts as time spent."""

    def sample(self, call: Call, calls: int) -> float:
        """Return the seconds of *calls* calls."""


class Effort(NamedTuple):
    """How much effort a measurement takes."""

    interval: float = 0.01  # target for half the confidence interval, as a fraction of the median
    sample_s: float = 200e-6  # least duration of a sample: the clock's resolution and its cost are below one percent
    warmup_s: float = 0.02  # before samples count: clocks rise, caches fill; libraries have chosen kernels
    steady_s: float = 0.15  # instead, for compute-bound calls of *long_s* or longer: the clock settles as in training
    long_s: float = 200e-6
    longest_s: float = 1.5  # stop after this time, if there are enough samples for an interval
    most_samples: int = 200  # stop after this many samples
    most_calls: int = 1 << 13  # of a sample


def time_call(
    watch: Stopwatch, call: Call, effort: Effort, *, one_by_one: bool = False, at_least: int = 1, hard: bool = False
) -> Interval:
    """Return the median time of one *call*, in seconds, with its interval; *hard* marks compute-bound calls.

    *one_by_one*: every call waits for the one before; otherwise a sample holds *at_least* this many calls.
    """
    started = time.perf_counter()

    def elapsed_s() -> float:
        return float(getattr(watch, "spent_s", time.perf_counter() - started))

    calls = 1 if one_by_one else at_least
    watch.sample(call, calls)  # includes building, compiling and choosing kernels
    spent_s = watch.sample(call, calls)
    one_s = spent_s / calls
    while elapsed_s() < effort.longest_s:
        if not one_by_one:
            calls = max(at_least, _count(one_s, effort))
        took_s = watch.sample(call, calls)
        spent_s += took_s
        one_s = min(one_s, took_s / calls)
        # The first estimate includes launch overhead: stop when this many calls do last long enough.
        enough = one_by_one or calls >= _count(one_s, effort)
        if enough and spent_s >= (effort.steady_s if hard and one_s >= effort.long_s else effort.warmup_s):
            break
    ran_dry = False

    def sample() -> float:
        nonlocal ran_dry
        took_s = watch.sample(call, calls) / calls
        ran_dry |= bool(getattr(watch, "ran_dry", False))
        return took_s

    return repeated(sample, elapsed_s, effort)._replace(ran_dry=ran_dry)


def repeated(sample: Callable[[], float], spent_s: Callable[[], float], effort: Effort) -> Interval:
    """Return the median of repeated samples; stop when it is precise enough or *spent_s* exceeds the limits."""
    samples: list[float] = []
    look = FEWEST
    while True:
        samples.append(sample())
        n, elapsed_s = len(samples), spent_s()
        if n >= FEWEST and (n >= effort.most_samples or elapsed_s >= effort.longest_s):
            break
        if n >= look:  # checked rarely: a check sorts the samples, and frequent checks stop at a lucky interval
            if median_interval(samples).relative <= effort.interval:
                break
            look = n + max(2, n // 4)
        if elapsed_s >= 4 * effort.longest_s:  # for calls of many seconds, few samples must do
            break
    return median_interval(samples)


def _count(one_s: float, effort: Effort) -> int:
    """Return how many calls make a sample, as a power of two, which limits the number of captured graphs."""
    return min(effort.most_calls, 1 << max(0, math.ceil(math.log2(effort.sample_s / max(one_s, 1e-8)))))
