"""The memory that queued work holds over time: :func:`held_curve`.

An operator holds the memory of its result from its issue until its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from simulator.engine.timeline import Span
from simulator.programs.state import HeldMemory

_POINTS = 200
_SAME = 1e-9  # relative difference of periods that counts as rounding
_WRITTEN = 1000  # up to this many repetitions of an outer loop are treated one by one


def held_curve(held: Iterable[HeldMemory], spans: Sequence[Span]) -> tuple[float, tuple[tuple[float, float], ...]]:
    """Return the peak of the bytes held at once, and the curve as (seconds, bytes) points joined by straight lines.

    Skipped repetitions rise and fall linearly, which is exact to within the memory of one repetition.  Those that each
    hold the same memory as the one before are left out, as the written ones show it.  The curve keeps at most about 200
    points, the highest among them.
    """
    jumps: dict[float, float] = {}
    slopes: dict[float, float] = {}

    def change(at_s: float, size_bytes: float, steps: Sequence[tuple[int, float]]) -> None:
        if not steps:
            jumps[at_s] = jumps.get(at_s, 0.0) + size_bytes
            return
        (times, period_s), outer = steps[0], steps[1:]
        if outer and outer[-1][0] <= _WRITTEN:
            for k in range(1, outer[-1][0] + 1):
                change(at_s + k * outer[-1][1], size_bytes, steps[:-1])
        elif outer:  # spread an inner loop's repetitions evenly over the outer loop's period
            change(at_s, size_bytes, ((times * outer[0][0], outer[0][1] / times), *outer[1:]))
        elif period_s <= 0:
            jumps[at_s] = jumps.get(at_s, 0.0) + times * size_bytes
        else:
            slope, end_s = size_bytes / period_s, at_s + times * period_s
            slopes[at_s] = slopes.get(at_s, 0.0) + slope
            slopes[end_s] = slopes.get(end_s, 0.0) - slope

    for each in held:
        if _repeats(each, spans):
            continue
        change(spans[each.issued].end_s, each.size_bytes, [(a.times, a.issue_s) for a in each.again])
        change(spans[each.done].end_s, -each.size_bytes, [(a.times, a.done_s) for a in each.again])
    points: list[tuple[float, float]] = []
    level = slope = before_s = 0.0
    for at_s in sorted({*jumps, *slopes}):
        level += slope * (at_s - before_s)
        points.append((at_s, max(0.0, level)))
        slope += slopes.get(at_s, 0.0)
        level += jumps.get(at_s, 0.0)
        points.append((at_s, max(0.0, level)))
        before_s = at_s
    if not points:
        return 0.0, ()
    highest = max(range(len(points)), key=lambda i: points[i][1])
    every = -(-len(points) // _POINTS)
    kept = sorted({*range(0, len(points), every), highest, len(points) - 1})
    return points[highest][1], tuple(points[i] for i in kept)


def _repeats(held: HeldMemory, spans: Sequence[Span]) -> bool:
    """Return whether skipped repetitions hold *held* one after the other, as the written repetition does."""
    if not held.again or any(abs(a.issue_s - a.done_s) > _SAME * a.done_s for a in held.again):
        return False
    return spans[held.done].end_s - spans[held.issued].end_s <= held.again[0].issue_s
