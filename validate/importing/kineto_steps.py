"""Steps on the device from marks on the host, which runs ahead of the device."""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Sequence
from typing import Protocol


class _Run(Protocol):
    start_s: array[float]
    time_s: array[float]
    launch: array[int]


class Launches:
    """Launch times on the host, by correlation id."""

    def __init__(self) -> None:
        self._ids, self._at_s = array("q"), array("d")

    def add(self, correlation: int, at_s: float) -> None:
        """Add a runtime call at *at_s*, in seconds, unless *correlation* is -1."""
        if correlation >= 0:
            self._ids.append(correlation)
            self._at_s.append(at_s)

    def by_id(self) -> dict[int, float]:
        """Return the launch times in seconds by correlation id."""
        return dict(zip(self._ids, self._at_s, strict=True))


def steps_on_device(
    marks: Sequence[tuple[float, float]], kernels: _Run, launches: Launches
) -> list[tuple[float, float]]:
    """Return the start and end of each step, in seconds, from the host's *marks* and the kernels launched within them.

    A step ends with its last kernel or its mark, whichever is later; the next step starts then, or with its own mark if
    that is later.  The first step waits for kernels launched before it.  torch-tb-profiler 0.4.3 counts steps this way
    (``profiler/event_parser.py``, ``update_device_steps``).  Without launches the marks are returned unchanged.
    """
    launched_s = launches.by_id()
    if not marks or not any(correlation in launched_s for correlation in kernels.launch):
        return list(marks)
    starts = [start_s for start_s, _ in marks]
    ends = [end_s for _, end_s in marks]
    before_s = starts[0]
    own = [
        s for s, each in zip(kernels.start_s, kernels.launch, strict=True) if launched_s.get(each, -1.0) >= starts[0]
    ]
    first_s = min(own, default=starts[0])  # kernels before this were launched before the first step
    for start_s, time_s, correlation in zip(kernels.start_s, kernels.time_s, kernels.launch, strict=True):
        at_s = launched_s.get(correlation)
        place = -1 if at_s is None else bisect.bisect_right(starts, at_s) - 1
        if place >= 0 and at_s is not None and at_s < marks[place][1]:
            ends[place] = max(ends[place], start_s + time_s)
        elif place < 0 and start_s < first_s:
            before_s = max(before_s, start_s + time_s)
    found: list[tuple[float, float]] = []
    for start_s, end_s in zip(starts, ends, strict=True):
        begin_s = max(start_s, found[-1][1] if found else before_s)
        found.append((begin_s, max(begin_s, end_s)))
    return found
