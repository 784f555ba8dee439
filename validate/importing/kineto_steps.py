"""When a device runs the steps that only the host marks: it runs behind the host, which issues ahead of it."""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Sequence
from typing import Protocol

__all__ = ["Launches", "steps_on_device"]


class _Run(Protocol):
    start_s: array[float]
    time_s: array[float]
    launch: array[int]


class Launches:
    """When the host launched what, by correlation id."""

    def __init__(self) -> None:
        self._ids, self._at_s = array("q"), array("d")

    def add(self, correlation: int, at_s: float) -> None:
        """Add a call of the runtime at *at_s*; -1 is none."""
        if correlation >= 0:
            self._ids.append(correlation)
            self._at_s.append(at_s)

    def by_id(self) -> dict[int, float]:
        """Return the time of each."""
        return dict(zip(self._ids, self._at_s, strict=True))


def steps_on_device(
    marks: Sequence[tuple[float, float]], kernels: _Run, launches: Launches
) -> list[tuple[float, float]]:
    """Return from when to when each step lasts that the host marks, with the kernels that it launched.

    A step ends with its last kernel, or later with the host; the next one starts there, or later with the host.
    Kernels that an earlier step launched delay the first.  So torch-tb-profiler 0.4.3 counts
    (``profiler/event_parser.py``, ``update_device_steps``).  Without launches the marks stay as they are.
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
    first_s = min(own, default=starts[0])  # what runs before that, an earlier step has launched
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
