"""The memory that queued work holds over time: :func:`held_curve`.

An operator holds its result's memory from when it has been issued until it is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from simulator.engine.timeline import Span
from simulator.programs.state import Held

__all__ = ["held_curve"]

_POINTS = 200
_SAME = 1e-9  # relative: periods that differ by rounding alone
_WRITTEN = 1000  # repetitions of an outer loop that are looked at one by one


def held_curve(held: Iterable[Held], spans: Sequence[Span]) -> tuple[float, tuple[tuple[float, float], ...]]:
    """Return the most bytes that are held at once, and the curve: seconds and bytes, with straight lines between.

    What passed at once rises and falls evenly, to within what one repetition holds.  Where each repetition holds what
    that before did it is left out, and those that were written show it.  The curve keeps at most 200 of its points, the
    highest among them.
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
        elif outer:  # an inner loop's are spread evenly over the outer one's repetition
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


def _repeats(held: Held, spans: Sequence[Span]) -> bool:
    """Whether repetitions that passed at once hold *held* one after the other, as the one that was written does."""
    if not held.again or any(abs(a.issue_s - a.done_s) > _SAME * a.done_s for a in held.again):
        return False
    return spans[held.done].end_s - spans[held.issued].end_s <= held.again[0].issue_s
