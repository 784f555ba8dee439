"""The recommended way among results, and the reason for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from simulator.plan.plan import Flow, Plan
from simulator.results.bottleneck import LinkUse
from simulator.results.result import TIE, Result, listed
from simulator.units import format_duration, format_size

if TYPE_CHECKING:  # exchanges alone need no device models
    from simulator.results.training import TrainingResult

Answer = TypeVar("Answer", Result, "TrainingResult")
_EQUAL = 1e-6  # relative; times that differ only by rounding


def rounds_in_sequence(plan: Plan) -> int:
    """Return the number of consecutive rounds of transfers on the longest chain of *plan*."""
    depth: list[int] = []
    last_on: dict[str, int] = {}
    for task in plan.tasks:
        before = [*task.after, *([last_on[task.stream]] if task.stream in last_on else [])]
        own = task.repeat if task.moves else 0
        depth.append(own + max((depth[number] for number in before), default=0))
        last_on[task.stream] = task.id
    return max(depth, default=0)


def _compared(results: Sequence[Answer]) -> tuple[list[Answer], list[Answer], list[Answer]]:
    """Return those ranked, those faster but timed without software, and bounds, ranked if nothing else is there."""
    above = [result for result in results if not result.is_bound]
    bounds = [result for result in results if result.is_bound]
    counted = [result for result in above if result.counts_software]
    if not counted:
        return above or bounds, [], bounds if above else []
    ranked: list[Answer] = []
    bare: list[Answer] = []
    for result in above:
        (ranked if result.counts_software or _is_slower(counted[0], result) else bare).append(result)
    return ranked, bare, bounds


def verdict(results: Sequence[Result]) -> str:
    """Return a recommendation among *results* (fastest first), with the reason, in a sentence or two.

    What users can select is ranked among itself, and first by times that include launches and protocols.  Ideal
    schedules on the bare links are bounds, and show what is left to gain.
    """
    ranked, bare, bounds = _compared(results)
    text = _ranked(ranked, results, "bound" if ranked[0].is_bound else "")
    if bare:
        names = listed([_name(result, results) for result in bare])
        text += f"; {names} would need {format_duration(bare[0].sync_time_s)} on the bare links alone"
    return f"{text}; {_beside(ranked[0], bounds, results)}" if bounds else text


def _ranked(ranked: Sequence[Answer], among: Sequence[Answer], noun: str) -> str:
    """Return which of *ranked* is first and why; all are software, or all bounds, which *noun* names; fastest first."""
    best, tied = ranked[0], _tied(ranked)
    names = [_name(result, among) for result in tied]
    best_s = _s_a_sample(best)
    if len(ranked) == 1:
        seconds = best.sync_time_s if isinstance(best, Result) else best.step_time_s
        return f"{names[0]} {'takes' if best.counts_software else 'needs at least'} {format_duration(seconds)}"
    close = _close_words(_s_a_sample(tied[-1]) / best_s if best_s > 0 else 1.0)
    if len(tied) == len(ranked):
        return _all_equal(names, noun, close)
    other = next(result for result in ranked if result not in tied)
    ratio = _s_a_sample(other) / best_s if best_s > 0 else math.inf
    called = _name(other, among)
    sure = all(result.is_bound or result.confidence.estimate is not None for result in (best, other))
    text = _first(names, called if sure else f"{called} by figures without a band", ratio, noun, close)
    if isinstance(best, Result) and isinstance(other, Result):
        return f"{text}: {_because(best, other, names[0], called)}"
    return text


def _close_words(ratio: float) -> str:
    """Return how close times are if the largest is *ratio* times the smallest; empty if exactly equal."""
    if ratio <= 1 + _EQUAL:
        return ""
    return "equal within 1 %" if ratio <= 1 + TIE else "equal within the model's error"


def _all_equal(names: Sequence[str], noun: str, close: str) -> str:
    """Return that all *names* are equal, with the tolerance *close*; *noun* is not empty for bounds."""
    if noun:
        return f"{listed(names)} have the same {noun}{f' ({close})' if close else ''}"
    return f"{listed(names)} {f'are {close}' if close else 'are equally fast'}"


def _first(names: Sequence[str], other: str, ratio: float, noun: str, close: str) -> str:
    """Return that *names* come first and *other* takes *ratio* times as long; *noun* is not empty for bounds."""
    close = f" ({close})" if close else ""
    if noun:
        has = "has" if len(names) == 1 else "have"
        return f"{listed(names)} {has} the lowest {noun}{close}, and that of {other} is {_times(ratio)} as high"
    return f"{listed(names)} {'is' if len(names) == 1 else 'are'} fastest{close}, {_times(ratio)} as fast as {other}"


def _beside(best: Result, bounds: Sequence[Result], among: Sequence[Result]) -> str:
    """Return how far *best* is from the lowest of *bounds*, and why if both are times on the bare links."""
    lowest, name = bounds[0], _name(best, among)
    least = format_duration(lowest.sync_time_s)
    called = _name(lowest, among)
    if lowest.sync_time_s >= best.sync_time_s:
        text = f"no ideal schedule on the bare links is below {name}: {called} needs at least {least}"
        both = best, lowest, name, called
    else:
        names = listed([_name(result, among) for result in _tied(bounds)])
        share = lowest.sync_time_s / best.sync_time_s
        text = f"the lowest bound, that of {names}, is {least}: {share * 100:.0f} % of the time of {name}"
        both = lowest, best, called, name
    comparable = not best.counts_software and abs(lowest.sync_time_s - best.sync_time_s) > TIE * best.sync_time_s
    return f"{text}, as {_because(*both)}" if comparable else text


def _tied(results: Sequence[Answer]) -> list[Answer]:
    return [result for result in results if not _is_slower(results[0], result)]


def _unsure(one: Answer, other: Answer) -> float:
    """Return the relative difference below which order is unknown; on one machine, common errors cancel."""
    mine, theirs = one.confidence.estimate, other.confidence.estimate
    if mine is None or theirs is None:
        return TIE
    halves = (mine.ways, theirs.ways) if one.machine == other.machine else (mine.machines, theirs.machines)
    return max(TIE, math.expm1(math.hypot(*halves)))


def _is_slower(best: Answer, other: Answer) -> bool:
    """Return whether *other* is slower than *best* by more than the model can tell."""
    return _s_a_sample(other) > _s_a_sample(best) * (1 + _unsure(best, other))


def _s_a_sample(result: Answer) -> float:
    if isinstance(result, Result):
        return result.sync_time_s
    return 1.0 / result.throughput if result.throughput > 0 else 0.0


def _name(result: Answer, among: Sequence[Answer]) -> str:
    """Return a name that distinguishes *result* *among* others: its strategy or way, its machine, or both."""
    if len({other.machine for other in among}) == 1:
        return _way(result)
    return result.machine if len({_way(other) for other in among}) == 1 else f"{_way(result)} on {result.machine}"


def _way(result: Answer) -> str:
    return result.strategy if isinstance(result, Result) else result.way


def _times(ratio: float) -> str:
    if ratio >= 1000:
        return f"{ratio:,.0f} times"
    return f"{ratio:.4f} times" if ratio < 1.01 else f"{ratio:.3g} times"


def _because(best: Result, other: Result, name: str, called: str) -> str:
    """Return which factor makes the difference: the bytes over the bottleneck, or the fraction of time it is in use.

    *best* is called *name*, *other* is called *called*.  A time equals the bottleneck's bytes at full rate, divided by
    the fraction of the time that it is in use; so the logarithm of the ratio of two times is a sum of two terms.
    """
    mine, theirs = best.bottleneck, other.bottleneck
    if mine is None or theirs is None:
        return f"{name} moves no bytes" if mine is None else f"{called} waits without moving bytes"
    ratio = math.log(other.sync_time_s / best.sync_time_s)
    carried = 1 - math.log(mine.utilisation / theirs.utilisation) / ratio
    rounds = (rounds_in_sequence(best.timeline.plan), rounds_in_sequence(other.timeline.plan))
    if carried <= 0.2 and rounds[0] < rounds[1]:
        mine_rounds = "1 round" if rounds[0] == 1 else f"{rounds[0]} rounds"
        return f"{name} runs {mine_rounds} one after the other, {called} {rounds[1]}"
    terms = [
        _term(result, use, carries=carried > 0.2, used=carried < 0.8) for result, use in ((best, mine), (other, theirs))
    ]
    if mine.name == theirs.name:
        with_other = terms[1].removeprefix("carries ").removeprefix("is in use ")
        text = f"the bottleneck {mine.name} {terms[0]}, with {called} {with_other}"
    else:
        text = f"the bottleneck of {name}, {mine.name}, {terms[0]}, that of {called}, {theirs.name}, {terms[1]}"
    if _directions(best, mine) == "at once":
        text += {
            "one": f"; {name} uses both directions of it, {called} one",
            "in turn": f"; {name} uses both directions of it at once, {called} in turn",
        }.get(_directions(other, theirs), "")
    return text


def _term(result: Result, use: LinkUse, *, carries: bool, used: bool) -> str:
    share = f"{use.utilisation * 100:.3g} % of the time"
    if not carries:
        return f"is in use for {share}"
    busy = f"in {share}" if used else f"({format_duration(use.utilisation * result.sync_time_s)} at full rate)"
    return f"carries {format_size(use.bytes)} {busy}"


def _directions(result: Result, use: LinkUse) -> str:
    """Return whether the directions of *use* carry ``at once``, ``in turn`` or ``one`` only; "" without two."""
    machine = result.timeline.machine
    src, arrow, dst = use.name.partition("->")
    forth, back = machine.link(use.name), machine.link(f"{dst}->{src}")
    if not arrow or forth is None or back is None:
        return ""
    here, there = forth.index, back.index
    spans: dict[int, list[tuple[float, float]]] = {here: [], there: []}
    for task, span in result.timeline.ran():
        flows = [part for part in task.parts if isinstance(part, Flow) and part.bytes]
        crossed = {link for link in spans if any(flow.crosses(link) for flow in flows)}
        for link in crossed:
            spans[link].append((span.start_s, span.end_s))
    if not spans[there]:
        return "one"
    return "at once" if _overlap(spans[here], spans[there], 1e-9 * result.sync_time_s) else "in turn"


def _overlap(some: list[tuple[float, float]], others: list[tuple[float, float]], least_s: float) -> bool:
    """Return whether an interval of *some* and one of *others* overlap by more than *least_s*."""
    marked = sorted([(start, end, 0) for start, end in some] + [(start, end, 1) for start, end in others])
    last_end = [-math.inf, -math.inf]
    for start, end, side in marked:
        if min(end, last_end[1 - side]) - start > least_s:
            return True
        last_end[side] = max(last_end[side], end)
    return False


# -- steps ---------------------------------------------------------------------------


def steps_verdict(results: Sequence[TrainingResult]) -> str:
    """Return the fastest way to run a step and why, in a sentence or two; machines are compared by throughput."""
    fitting = [result for result in results if result.fits]
    if not fitting:
        return "none fits into the memory of its devices; asked alone, each says what would fit"
    ranked, bare, bounds = _compared(fitting)
    best = ranked[0]
    noun = "" if not best.is_bound else "bound" if len({r.samples for r in ranked}) == 1 else "bound per sample"
    said = [_ranked(ranked, results, noun)]
    if best.device_count > 1 and best.step_time_s > best.alone_s:
        lost = format_duration(max(0.0, best.step_time_s - best.alone_s), 3)
        whole = format_duration(best.step_time_s)
        who, least = _name(best, results) if len(ranked) > 1 else "it", "at least " if noun else ""
        said.append(f"{who} loses {least}{lost} of {whole} against one device alone")
    if bare:
        named = listed([_name(result, results) for result in bare])
        said.append(f"{named} would need {format_duration(bare[0].step_time_s)} with exchanges on the bare links alone")
    if bounds and bounds[0].throughput > best.throughput:
        gain = f"{(bounds[0].throughput / best.throughput - 1) * 100:.2g} %"
        said.append(f"ideal schedules would gain at most {gain} ({_name(bounds[0], results)})")
    return "; ".join(said)
