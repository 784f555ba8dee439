"""The memory that queued work holds over time: :func:`held_curve`.

An operator holds its result's memory from when it has been issued until it is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from simulator.engine.timeline import Span
from simulator.programs.state import Held

__all__ = ["held_curve"]

_POINTS = 200


def held_curve(held: Iterable[Held], spans: Sequence[Span]) -> tuple[float, tuple[tuple[float, float], ...]]:
    """Return the most bytes that are held at once, and the curve: seconds and bytes, with straight lines between.

    What passed at once rises and falls evenly.  The curve keeps at most 200 of its points, the highest among them.
    """
    jumps: dict[float, float] = {}
    slopes: dict[float, float] = {}

    def change(at_s: float, size_bytes: float, times: int, period_s: float) -> None:
        if not times:
            jumps[at_s] = jumps.get(at_s, 0.0) + size_bytes
        elif period_s <= 0:
            jumps[at_s] = jumps.get(at_s, 0.0) + times * size_bytes
        else:
            slope = size_bytes / period_s
            slopes[at_s] = slopes.get(at_s, 0.0) + slope
            end_s = at_s + times * period_s
            slopes[end_s] = slopes.get(end_s, 0.0) - slope

    for each in held:
        change(spans[each.issued].end_s, each.size_bytes, each.times, each.issue_period_s)
        change(spans[each.done].end_s, -each.size_bytes, each.times, each.done_period_s)
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
