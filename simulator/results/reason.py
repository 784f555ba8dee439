"""Why the fastest strategy is the fastest, in one line computed from the results."""

from __future__ import annotations

import math
from collections.abc import Sequence

from simulator.plan.plan import Plan, Transfer
from simulator.results.result import LinkUse, Result
from simulator.units import format_duration, format_size

__all__ = ["rounds_in_sequence", "why_fastest"]

_TIE = 1e-3  # relative; no model of a real machine tells less apart
_EQUAL = 1e-6  # relative; rounding apart, the same time


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
    close = " (within 0.1 %)" if results[len(tied) - 1].sync_time_s > best.sync_time_s * (1 + _EQUAL) else ""
    names = tied[0] if len(tied) == 1 else ", ".join(tied[:-1]) + " and " + tied[-1]
    if not slower:
        return f"{names} is the only one that fits" if len(results) == 1 else f"{names} take the same time{close}"
    other = slower[0]
    verb = "is" if len(tied) == 1 else "are"
    ratio = other.sync_time_s / best.sync_time_s if best.sync_time_s > 0 else float("inf")
    text = f"{names} {verb} fastest{close}, {_ratio(ratio)} as fast as {other.strategy}: {_because(best, other)}"
    if other.counts_software and not best.counts_software:
        text += f"; {other.strategy} pays for launches and protocols too"
    return text


def _ratio(ratio: float) -> str:
    if ratio >= 1000:
        return f"{ratio:,.0f} times"
    return f"{ratio:.4f} times" if ratio < 1.01 else f"{ratio:.3g} times"


def _because(best: Result, other: Result) -> str:
    """Say which of two factors makes the difference: what the bottleneck carries, or for how long it is in use.

    A time is the bottleneck's bytes at full rate over the share of the time that it is in
    use; so the logarithm of the ratio of two times is a sum of two parts.
    """
    mine, theirs = best.bottleneck, other.bottleneck
    if mine is None or theirs is None:
        return "it moves no bytes" if mine is None else f"{other.strategy} waits without moving bytes"
    ratio = math.log(other.sync_time_s / best.sync_time_s)
    carried = 1 - math.log(mine.utilisation / theirs.utilisation) / ratio
    rounds = (rounds_in_sequence(best.timeline.plan), rounds_in_sequence(other.timeline.plan))
    alike = best.counts_software == other.counts_software
    if carried <= 0.2 and rounds[0] < rounds[1] and alike:
        mine_rounds = "1 round" if rounds[0] == 1 else f"{rounds[0]} rounds"
        return f"it runs {mine_rounds} one after the other, {other.strategy} {rounds[1]}"
    terms = [
        _term(result, use, carries=carried > 0.2, used=carried < 0.8) for result, use in ((best, mine), (other, theirs))
    ]
    if mine.name == theirs.name:
        with_other = terms[1].removeprefix("carries ").removeprefix("is in use ")
        text = f"the bottleneck {mine.name} {terms[0]}, with {other.strategy} {with_other}"
    else:
        text = f"its bottleneck {mine.name} {terms[0]}, {theirs.name} of {other.strategy} {terms[1]}"
    if _directions(best, mine) == "at once":
        text += {
            "one": f"; {best.strategy} uses both directions of it, {other.strategy} one",
            "in turn": f"; {best.strategy} uses both directions of it at once, {other.strategy} in turn",
        }.get(_directions(other, theirs), "")
    return text


def _term(result: Result, use: LinkUse, *, carries: bool, used: bool) -> str:
    share = f"{use.utilisation * 100:.3g} % of the time"
    if not carries:
        return f"is in use for {share}"
    busy = f"in {share}" if used else f"({format_duration(use.utilisation * result.sync_time_s)} at full rate)"
    return f"carries {format_size(use.bytes)} {busy}"


def _directions(result: Result, use: LinkUse) -> str:
    """Return whether both directions of the link *use* carry bytes ``at once`` or ``in turn``, or only ``one`` does."""
    machine = result.timeline.machine
    src, arrow, dst = use.name.partition("->")
    index = {link.name: link.index for link in machine.links}
    here, there = index.get(use.name), index.get(f"{dst}->{src}")
    if not arrow or here is None or there is None:
        return ""
    spans: dict[int, list[tuple[float, float]]] = {here: [], there: []}
    for task, span in zip(result.timeline.plan.tasks, result.timeline.spans, strict=True):
        if isinstance(task, Transfer):
            crossed = {link for flow in task.flows for link, _ in flow.route.links if link in spans and flow.bytes}
            for link in crossed:
                spans[link].append((span.start_s, span.end_s))
    if not spans[there]:
        return "one"
    return "at once" if _overlap(spans[here], spans[there], 1e-9 * result.sync_time_s) else "in turn"


def _overlap(some: list[tuple[float, float]], others: list[tuple[float, float]], least_s: float) -> bool:
    """Whether an interval of *some* and one of *others* have more than *least_s* in common."""
    marked = sorted([(start, end, 0) for start, end in some] + [(start, end, 1) for start, end in others])
    last_end = [-math.inf, -math.inf]
    for start, end, side in marked:
        if min(end, last_end[1 - side]) - start > least_s:
            return True
        last_end[side] = max(last_end[side], end)
    return False
