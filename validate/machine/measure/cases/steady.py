"""Time of one step among many issued back to back, with the host as far ahead as it gets."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from validate.machine.measure.timing import FEWEST, Effort, Interval, median_interval

_WARMUP = 3  # fewest warm-up steps
_PAUSE_S = 1e-3


@dataclass(frozen=True, slots=True)
class TimedRun:
    """What is timed: ``run``, after an untimed ``prepare``.

    Without ``prepare``, the time of a step starts at the end of the previous one.  ``begin`` is called once after
    warm-up, ``end`` after the last sample; it may reject the samples (Unavailable).
    """

    run: Callable[[], object]
    prepare: Callable[[], object] | None = None
    begin: Callable[[], object] = lambda: None
    end: Callable[[], object] = lambda: None


Patience = partial(Effort, longest_s=1.2, warmup_s=0.1, most_samples=150)
"""How long to measure a step, by default."""


class CpuClock:
    """Marks by the monotonic clock; issued work is complete on return."""

    transient = 0

    def mark(self) -> float:
        """Return the current time."""
        return time.perf_counter()

    def between_s(self, earlier: float, later: float) -> float:
        """Return the seconds between."""
        return later - earlier

    def settle(self) -> None:
        """Do nothing: no work is pending."""

    def watch(self, until: float) -> None:
        """Do nothing: there are no sensors."""


class CudaClock:
    """Marks as CUDA events in the current stream."""

    transient = 2

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look

    def mark(self) -> Any:
        """Record and return an event in the stream."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between_s(self, earlier: Any, later: Any) -> float:
        """Return the device time between the events, in seconds."""
        return float(earlier.elapsed_time(later)) / 1000

    def settle(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize()

    def watch(self, until: Any) -> None:
        """Read sensors until the event has completed."""
        self._look()
        while not until.query():
            time.sleep(_PAUSE_S)
            self._look()


Clock = CpuClock | CudaClock
"""Marks moments in the work of a device; ``transient`` is the number of steps until the host is ahead."""


def steady_interval(clock: Clock, step: TimedRun, patience: Effort) -> Interval:
    """Return the median time of one step on one device, in seconds, with its interval."""
    return median_interval(agreed_samples(clock, step, patience))


def agreed_samples(
    clock: Clock, step: TimedRun, patience: Effort, greatest: Callable[[float], float] | None = None
) -> list[float]:
    """Return the seconds of each timed step on this rank; all ranks of a group call this together.

    A burst of steps is issued without waiting.  Its first ``clock.transient`` steps do not count, as the device still
    waits for the host.  All decisions depend on *greatest*, the maximum over ranks, so that all run equally many steps;
    None for one device, whose sensors are read meanwhile.
    """
    agreed = greatest or (lambda seconds: seconds)

    def burst(count: int, *, watched: bool = False) -> tuple[list[float], float]:
        began_s = time.perf_counter()
        found = _burst(clock, step, count, watched=watched)
        return found, agreed(time.perf_counter() - began_s)

    one_s, spent_s = math.inf, 0.0
    for count in range(1, 1000):  # warm-up: libraries choose kernels, memory is allocated, clocks rise
        _, took_s = burst(1)
        spent_s += took_s
        one_s = min(one_s, took_s)
        if (count >= _WARMUP and spent_s >= patience.warmup_s) or (count > 1 and one_s > patience.longest_s):
            break
    fewest = FEWEST if one_s * FEWEST <= 4 * patience.longest_s else 3  # for very long steps three must do
    n = max(fewest, min(40, math.ceil(patience.longest_s / 2 / max(one_s, 1e-6))))
    samples: list[float] = []
    spent_s = 0.0
    step.begin()
    while True:
        found, took_s = burst(n + clock.transient, watched=greatest is None)
        samples += found[clock.transient :]
        spent_s += took_s
        known = agreed(median_interval(samples).relative) <= patience.interval
        if known or len(samples) >= patience.most_samples or spent_s + n * one_s > 2 * patience.longest_s:
            break
    step.end()
    return samples


def _burst(clock: Clock, step: TimedRun, count: int, *, watched: bool = False) -> list[float]:
    """Return the seconds of each of *count* steps.

    Sensors are read after all steps are issued, while the device still works: reading within a step would delay the
    host.
    """
    clock.settle()
    ends: list[Any] = [clock.mark()]
    starts: list[Any] = []
    for _ in range(count):
        if step.prepare is not None:
            step.prepare()
            starts.append(clock.mark())
        step.run()
        ends.append(clock.mark())
    if watched:
        clock.watch(ends[-1])
    clock.settle()
    if step.prepare is None:
        starts = ends[:-1]
    return [clock.between_s(start, end) for start, end in zip(starts, ends[1:], strict=True)]
