"""Which strategy to take, and why: computed from the results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from simulator.plan.plan import Plan
from simulator.results.result import LinkUse, Result
from simulator.units import format_duration, format_size

if TYPE_CHECKING:  # what exchanges alone need no models of devices
    from simulator.results.training import TrainingResult

__all__ = ["best_of", "bound_of", "by_time", "rounds_in_sequence", "steps_verdict", "verdict"]

_TIE = 1e-2  # relative; no model of a real machine tells less apart
_EQUAL = 1e-6  # relative; rounding apart, the same time


def rounds_in_sequence(plan: Plan) -> int:
    """Return how many rounds of transfers follow one another on the longest chain of *plan*."""
    depth: list[int] = []
    last_on: dict[str, int] = {}
    for task in plan.tasks:
        before = [*task.after, *([last_on[task.stream]] if task.stream in last_on else [])]
        own = task.repeat if task.flows else 0
        depth.append(own + max((depth[number] for number in before), default=0))
        last_on[task.stream] = task.id
    return max(depth, default=0)


def by_time(results: Iterable[Result]) -> list[Result]:
    """Return *results*, fastest first; rounding alone does not put one before the other."""
    return sorted(results, key=lambda result: float(f"{result.sync_time_s:.9e}"))


def best_of(results: Sequence[Result]) -> Result:
    """Return the first of *results* that software does, as nobody can select a bound; else the first bound."""
    return next((result for result in results if result.counts_software), results[0])


def verdict(results: Sequence[Result]) -> str:
    """Return in a sentence or two which of *results* (fastest first) to take, and why.

    What software does (launches and protocols are in its time) is ranked by itself; ideal schedules on the bare links
    are bounds, which say what is left to gain.
    """
    software = [result for result in results if result.counts_software]
    bounds = [result for result in results if not result.counts_software]
    if not software:
        return _lowest(bounds)
    text = _fastest(software)
    if bounds:
        text += f"{'; ' if len(software) == 1 else '. '}{_beside(software[0], bounds)}"
    return text


def _fastest(results: Sequence[Result]) -> str:
    best, tied = results[0], _tied(results)
    if len(results) == 1:
        return f"{_name(best, results)} takes {format_duration(best.sync_time_s)}"
    if len(tied) == len(results):
        return f"{_names(tied, results)} take the same time{_close(tied)}"
    other = results[len(tied)]
    verb = "is" if len(tied) == 1 else "are"
    ratio = _ratio(other.sync_time_s / best.sync_time_s if best.sync_time_s > 0 else math.inf)
    names = _names(tied, results)
    slower = _name(other, results)
    return f"{names} {verb} fastest{_close(tied)}, {ratio} as fast as {slower}: {_because(best, other, slower)}"


def _lowest(results: Sequence[Result]) -> str:
    best, tied = results[0], _tied(results)
    if len(results) == 1:
        return f"{_name(best, results)} is the only one that fits"
    if len(tied) == len(results):
        return f"{_names(tied, results)} have the same bound{_close(tied)}"
    other = results[len(tied)]
    verb = "has" if len(tied) == 1 else "have"
    ratio = _ratio(other.sync_time_s / best.sync_time_s if best.sync_time_s > 0 else math.inf)
    names, higher = _names(tied, results), _name(other, results)
    return f"{names} {verb} the lowest bound{_close(tied)}, {ratio} below that of {higher}: " + _because(
        best, other, higher
    )


def _beside(best: Result, bounds: Sequence[Result]) -> str:
    """Say how far *best* is from the lowest of *bounds*."""
    lowest = bounds[0]
    if lowest.sync_time_s >= best.sync_time_s:
        least = f"{_name(lowest, bounds)} needs at least {format_duration(lowest.sync_time_s)}"
        return f"no ideal schedule on the bare links is below it: {least}"
    tied = _tied(bounds)
    share = lowest.sync_time_s / best.sync_time_s
    return f"the lowest bound, of {_names(tied, bounds)}, is {format_duration(lowest.sync_time_s)}: {share:.0%} of it"


def _tied(results: Sequence[Result]) -> list[Result]:
    return [result for result in results if result.sync_time_s <= results[0].sync_time_s * (1 + _TIE)]


def _close(tied: Sequence[Result]) -> str:
    return " (equal within 1 %)" if tied[-1].sync_time_s > tied[0].sync_time_s * (1 + _EQUAL) else ""


def _name(result: Result, among: Sequence[Result]) -> str:
    """Return what tells *result* apart: its strategy, and its machine where there are several."""
    if len({other.machine for other in among}) == 1:
        return result.strategy
    if len({other.strategy for other in among}) == 1:
        return result.machine
    return f"{result.strategy} on {result.machine}"


def _names(results: Sequence[Result], among: Sequence[Result]) -> str:
    names = [_name(result, among) for result in results]
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def _ratio(ratio: float) -> str:
    if ratio >= 1000:
        return f"{ratio:,.0f} times"
    return f"{ratio:.4f} times" if ratio < 1.01 else f"{ratio:.3g} times"


def _because(best: Result, other: Result, called: str) -> str:
    """Say which of two factors makes the difference: what the bottleneck carries, or for how long it is in use.

    *other* goes by the name *called*.
    A time is the bottleneck's bytes at full rate over the share of the time that it is in
    use; so the logarithm of the ratio of two times is a sum of two parts.
    """
    mine, theirs = best.bottleneck, other.bottleneck
    if mine is None or theirs is None:
        return "it moves no bytes" if mine is None else f"{called} waits without moving bytes"
    ratio = math.log(other.sync_time_s / best.sync_time_s)
    carried = 1 - math.log(mine.utilisation / theirs.utilisation) / ratio
    rounds = (rounds_in_sequence(best.timeline.plan), rounds_in_sequence(other.timeline.plan))
    if carried <= 0.2 and rounds[0] < rounds[1]:
        mine_rounds = "1 round" if rounds[0] == 1 else f"{rounds[0]} rounds"
        return f"it runs {mine_rounds} one after the other, {called} {rounds[1]}"
    terms = [
        _term(result, use, carries=carried > 0.2, used=carried < 0.8) for result, use in ((best, mine), (other, theirs))
    ]
    if mine.name == theirs.name:
        with_other = terms[1].removeprefix("carries ").removeprefix("is in use ")
        text = f"the bottleneck {mine.name} {terms[0]}, with {called} {with_other}"
    else:
        text = f"its bottleneck {mine.name} {terms[0]}, {theirs.name} of {called} {terms[1]}"
    if _directions(best, mine) == "at once":
        text += {
            "one": f"; {best.strategy} uses both directions of it, {called} one",
            "in turn": f"; {best.strategy} uses both directions of it at once, {called} in turn",
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


# -- steps ---------------------------------------------------------------------------


def bound_of(result: TrainingResult) -> str:
    """Return what most of a step's time goes to: compute, memory, latency, host, or the exchange."""
    step = result.step
    times = {"exchange": result.exposed_s, "host": max(0.0, step.waiting_s - result.exposed_s)}
    for kind in step.kinds:
        for name in ("compute", "memory", "latency"):
            times[name] = times.get(name, 0.0) + getattr(kind, f"{name}_s")
    return max(times, key=lambda name: round(times[name], 12))


def steps_verdict(results: Sequence[TrainingResult]) -> str:
    """Return in a sentence or two which way to do a step is fastest, and why; of machines, by samples a second."""
    software = [result for result in results if result.counts_software and result.fits]
    bounds = [result for result in results if not result.counts_software and result.fits]
    ranked = software or bounds
    if not ranked:
        return "none fits into the memory of its devices"
    best = ranked[0]
    tied = [result for result in ranked if result.throughput * (1 + _TIE) >= best.throughput]
    names = [_way_of(result, results) for result in tied]
    joined = names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
    if len(tied) > 1:
        text = f"{joined} {'are equally fast' if software else 'have the same bound'}, within 1 %"
    elif len(ranked) > 1:
        text = f"{joined} {'is fastest' if software else 'has the lowest bound'}"
    else:
        text = joined
    if len(tied) < len(ranked):
        other = ranked[len(tied)]
        text += f", {_ratio(best.throughput / other.throughput)} as fast as {_way_of(other, results)}"
    if best.device_count > 1:
        lost_s = best.step_time_s - best.alone_s
        text += (
            f": of {format_duration(best.step_time_s)} it loses {format_duration(max(0.0, lost_s), 3)} to the exchange"
        )
    if software and bounds and bounds[0].throughput > best.throughput:
        gain = f"{(bounds[0].throughput / best.throughput - 1) * 100:.2g} %"
        text += f"; the best ideal schedule, {_way_of(bounds[0], results)}, would gain {gain}"
    return text


def _way_of(result: TrainingResult, among: Sequence[TrainingResult]) -> str:
    if len({other.machine for other in among}) == 1:
        return result.way
    return result.machine if len({other.way for other in among}) == 1 else f"{result.way} on {result.machine}"
