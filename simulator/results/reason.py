"""Why the fastest strategy is the fastest, in one line computed from the results."""

from __future__ import annotations

import math
from collections.abc import Sequence

from simulator.plan.plan import Plan, Transfer
from simulator.results.result import LinkUse, Result
from simulator.units import format_duration, format_size

__all__ = ["rounds_in_sequence", "why_fastest"]

_TIE = 1e-6  # relative


def rounds_in_sequence(plan: Plan) -> int:
    """Return how many rounds of transfers follow one another on the longest chain of *plan*."""
    depth: list[int] = []
    last_on: dict[str, int] = {}
    for task in plan.tasks:
        before = [*task.after, *([last_on[task.stream]] if task.stream in last_on else [])]
        own = task.repeat if isinstance(task, Transfer) else 0
        depth.append(own + max((depth[number] for number in before), default=0))
        last_on[task.stream] = task.id
    return max(depth, default=0)


def why_fastest(results: Sequence[Result]) -> str:
    """Return one sentence on why the first of *results* (fastest first) beats the next slower one."""
    best = results[0]
    tied = [r.strategy for r in results if r.sync_time_s <= best.sync_time_s * (1 + _TIE)]
    slower = results[len(tied) :]
    names = tied[0] if len(tied) == 1 else ", ".join(tied[:-1]) + " and " + tied[-1]
    if not slower:
        return f"{names} is the only one that fits" if len(results) == 1 else f"{names} take the same time"
    other = slower[0]
    verb = "is" if len(tied) == 1 else "are"
    ratio = other.sync_time_s / best.sync_time_s if best.sync_time_s > 0 else float("inf")
    return f"{names} {verb} fastest, {_ratio(ratio)} as fast as {other.strategy}: {_because(best, other)}"


def _ratio(ratio: float) -> str:
    if ratio >= 1000:
        return f"{ratio:,.0f} times"
    return f"{ratio:.4f} times" if ratio < 1.01 else f"{ratio:.3g} times"


def _because(best: Result, other: Result) -> str:
    """Say which of two factors makes the difference: what the bottleneck carries, or how much of the time it is in use.

    A time is the bottleneck's bytes at full rate over the share of the time that it is in
    use; so the logarithm of the ratio of two times is a sum of two parts.
    """
    mine, theirs = best.bottleneck, other.bottleneck
    if mine is None or theirs is None:
        return "it moves no bytes" if mine is None else f"{other.strategy} waits without moving bytes"
    ratio = math.log(other.sync_time_s / best.sync_time_s)
    carried = 1 - math.log(mine.utilisation / theirs.utilisation) / ratio
    if carried >= 0.8:
        text = _load(best, mine, other, theirs)
        if _opposite_share(best, mine) >= 0.5 and _opposite_share(other, theirs) <= 0.01:
            text += f"; it uses both directions of that link, {other.strategy} one"
        return text
    rounds = (rounds_in_sequence(best.timeline.plan), rounds_in_sequence(other.timeline.plan))
    if carried <= 0.2 and rounds[0] < rounds[1]:
        return f"it runs {rounds[0]} rounds one after the other, {other.strategy} {rounds[1]}"
    if carried <= 0.2:
        if mine.name == theirs.name:
            text = f"it keeps {mine.name} in use for {_percent(mine)} of the time, {other.strategy} {_percent(theirs)}"
        else:
            text = (
                f"its bottleneck, {mine.name}, is in use for {_percent(mine)} of the time, "
                f"that of {other.strategy}, {theirs.name}, {_percent(theirs)}"
            )
        return text
    return _load(best, mine, other, theirs, with_use=True)


def _load(best: Result, mine: LinkUse, other: Result, theirs: LinkUse, *, with_use: bool = False) -> str:
    """Say what both bottlenecks carry, and for how long at full rate or for what share of the time."""
    same = mine.name == theirs.name
    terms = []
    for result, use in ((best, mine), (other, theirs)):
        term = format_size(use.bytes)
        if with_use:
            term += f" in {_percent(use)} of the time"
        elif not same:
            term += f" ({format_duration(use.utilisation * result.sync_time_s)} at full rate)"
        terms.append(term)
    if same:
        return f"it puts {terms[0]} on its bottleneck {mine.name}, {other.strategy} {terms[1]}"
    return f"its bottleneck, {mine.name}, carries {terms[0]}, that of {other.strategy}, {theirs.name}, {terms[1]}"


def _percent(use: LinkUse) -> str:
    return f"{use.utilisation * 100:.3g} %"


def _opposite_share(result: Result, use: LinkUse) -> float:
    """Return the bytes of the opposite direction over those of *use*; 0.1, which says nothing, where it is no link."""
    src, arrow, dst = use.name.partition("->")
    opposite = next((u.bytes for u in result.links if u.name == f"{dst}->{src}"), None) if arrow else None
    return 0.1 if opposite is None or not use.bytes else opposite / use.bytes
