"""The recommended way among results, and the reason for it (docs/decisions/results.md)."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from simulator.plan.plan import Plan
from simulator.results import WORDS, percent
from simulator.results.comparison import TIE, Ratio, comparison_width, ratio_of, times_words
from simulator.results.result import Result, listed, name_among
from simulator.units import format_duration, format_size

if TYPE_CHECKING:  # exchanges alone need no device models
    from simulator.results.training import TrainingResult

Answer = TypeVar("Answer", Result, "TrainingResult")
_SHOWN = 2  # of the slower ones
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
    first = next((result for result in above if result.counts_software), None)
    if first is None:
        return above or bounds, [], bounds if above else []
    found: tuple[list[Answer], list[Answer]] = ([], [])
    for result in above:
        found[not (result.counts_software or _ratio(first, result).is_clear)].append(result)
    return found[0], found[1], bounds


def verdict(results: Sequence[Result]) -> str:
    """Return a recommendation among *results* (fastest first), with the reason, in a sentence or two."""
    ranked, bare, bounds = _compared(results)
    text = _ranked(ranked, results, "bound" if ranked[0].is_bound else "")
    if bare:
        names = listed([name_among(result, results) for result in bare])
        text += f"; {names} would need {format_duration(bare[0].sync_time_s)} on the bare links alone"
    return f"{text}; {_beside(ranked[0], bounds, results)}" if bounds else text


def _ranked(ranked: Sequence[Answer], among: Sequence[Answer], noun: str) -> str:
    """Return which of *ranked* is first and why; all are software, or all bounds, which *noun* names; fastest first."""
    best, tied = ranked[0], _tied(ranked)
    names, several = [name_among(result, among) for result in tied], len(tied) > 1
    first, last = listed(names), _ratio(best, tied[-1])
    if len(ranked) == 1:
        seconds = best.sync_time_s if isinstance(best, Result) else best.step_time_s
        return f"{first} {'takes' if best.counts_software else 'needs at least'} {format_duration(seconds)}"
    apart = f": {100 * (last.value - 1.0):.1f} % apart" * (max(last.value - 1.0, last.unsure) > TIE)
    close = f"equal within {last.unsure_words}{apart}" * (last.value > 1 + _EQUAL)
    within = f" ({close})" * bool(close)
    if len(tied) == len(ranked):
        return f"{first} have the same {noun}{within}" if noun else f"{first} are {close or 'equally fast'}"
    others = [result for result in ranked if result not in tied]
    other, called = others[0], name_among(others[0], among)
    if noun:
        times = f"{times_words(_ratio(best, other).value)} times"
        verb = "have" if several else "has"
        text = f"{first} {verb} the lowest {noun}{within}, and that of {called} is {times} as high"
    else:
        said = listed([_than(best, each, among) for each in others[:_SHOWN]])
        rank = "faster" if len(ranked) == 2 else "fastest"
        text = f"{first} {'are' if several else 'is'} {rank}{within}, {said}"
    if isinstance(best, Result) and isinstance(other, Result):
        return f"{text}: {_because(best, other, names[0], called)}"
    if isinstance(best, Result) or isinstance(other, Result):
        return text
    return f"{text}\n{called} {_lost_by(best, other)}"


def _than(best: Answer, other: Answer, among: Sequence[Answer]) -> str:
    ratio, called = _ratio(best, other), name_among(other, among)
    unsure = [name_among(r, among) for r in (best, other) if not r.is_bound and r.confidence.estimate is None]
    whose = "s" * (len(unsure) == 2) if len(unsure) != 1 or unsure == [called] else f" of {unsure[0]}"
    notes = [f"band{whose} not measured"] if unsure else [ratio.band[2:-1]] * bool(ratio.band)
    if not isinstance(best, Result) and not isinstance(other, Result) and best.step.part != other.step.part:
        peaks = [sum(each.count * each.peak_flops_per_s for each in step.memory) for step in (best, other)]
        paper = peaks[0] / (peaks[1] or 1.0)
        notes.append(f"{paper:.3g} times by peak FLOP/s" if abs(paper - 1.0) > TIE else "same peak FLOP/s")
    more = f" ({'; '.join(notes)})" if notes else ""
    return f"{times_words(ratio.value)} times as fast as {called}{more}"


def _lost_by(best: "TrainingResult", other: "TrainingResult") -> str:
    from simulator.results.headline import over_words
    from simulator.results.rates import rates_of
    from simulator.results.step_view import MATTERS, limit_words, main_wait, waits_of

    waits, name, unlike = waits_of(other), main_wait(other), best.step.part != other.step.part
    if not name:
        mine, theirs = (rates_of(each).mfu for each in (best, other))
        used = f"because it reaches {percent(mine)} of them, {other.machine} {percent(theirs)}"
        less = f"; {best.machine} gains less than its peak FLOP/s promise, {used}" * (unlike and mine < theirs)
        return f"is bound by {limit_words(other)}{less}"
    waited = f"{format_duration(waits[name] * other.step_time_s, 3)} ({100 * waits[name]:.0f} %) of its step for"
    if name != "exposed":
        return f"waits {waited} {WORDS['waits'][name]}"
    gathers = other.question.layout.zero == 3 and best.question.layout.zero < 3
    begin = "gathers the weights in each pass, and " if gathers else ""
    mine_s, theirs_s = ((1 - waits_of(each).get(name, 0.0)) * _s_a_sample(each) for each in (best, other))
    rest = Ratio(theirs_s / (mine_s or 1.0))
    called = best.machine if best.machine != other.machine else name_among(best, (best, other))
    links = over_words(best) if over_words(best) != over_words(other) else ""
    own = f" ({called}: {format_duration(best.exposed_s, 3)}{links})"
    against = own * bool(best.exchanging_s)
    besides = f"; even without communication it takes {times_words(rest.value)} times as long{_rest_words(best, other)}"
    besides *= rest.value > 1 + MATTERS
    return f"{begin}waits {waited} communication{over_words(other)}{against}{besides}"


def _rest_words(best: "TrainingResult", other: "TrainingResult") -> str:
    """Return what of *other* takes most longer than in *best*, besides communication: a wait, or a kind of kernels."""
    from simulator.results.step_view import LOST, SHARE_WORDS, kernel_words, time_shares

    shares = [{name: s / each.samples for name, s in time_shares(each).items()} for each in (best, other)]
    names = [name for name in shares[1] if LOST.get(name) != "exposed"]
    name = max(names, key=lambda each: shares[1][each] - shares[0].get(each, 0.0), default="")
    if name != "computing":
        return f", as {SHARE_WORDS[name]} takes {format_duration(shares[1][name] * other.samples, 3)}" if name else ""
    kinds = [{kind.kind: kind.time_s / each.samples for kind in each.step.kinds} for each in (best, other)]
    kind = max(kinds[1], key=lambda each: kinds[1][each] - kinds[0].get(each, 0.0), default="")
    if not kinds[0].get(kind):
        return ""
    words = f", as its {kernel_words(kind)} take {times_words(kinds[1][kind] / kinds[0][kind])} times as long"
    nodes = (each.timeline.machine.node(each.step.device) for each in (best, other))
    most, least = (getattr(node.part, "board_power", None) or 0.0 for node in nodes)
    return words + f" on a board of {least:.0f} W (not {most:.0f} W)" * (0.0 < least < most)


def _beside(best: Result, bounds: Sequence[Result], among: Sequence[Result]) -> str:
    """Return how far *best* is from the lowest of *bounds*, and why if both are times on the bare links."""
    lowest, name = bounds[0], name_among(best, among)
    least, called = format_duration(lowest.sync_time_s), name_among(lowest, among)
    if lowest.sync_time_s >= best.sync_time_s:
        text = f"no ideal schedule on the bare links is below {name}: {called} needs at least {least}"
        both = best, lowest, name, called
    else:
        names = listed([name_among(result, among) for result in _tied(bounds)])
        share = lowest.sync_time_s / best.sync_time_s
        text = f"the lowest bound, that of {names}, is {least}: {share * 100:.0f} % of the time of {name}"
        both = lowest, best, called, name
    comparable = not best.counts_software and abs(lowest.sync_time_s - best.sync_time_s) > TIE * best.sync_time_s
    return f"{text}, as {_because(*both)}" if comparable else text


def _tied(results: Sequence[Answer]) -> list[Answer]:
    return [result for result in results if not _ratio(results[0], result).is_clear]


def _ratio(best: Answer, other: Answer) -> Ratio:
    """Return how many times as long *other* takes; on one machine, more of the errors cancel."""
    same = best.machine == other.machine
    mine, theirs = (comparison_width(each.confidence.estimate, same=same) for each in (best, other))
    return ratio_of(_s_a_sample(other), _s_a_sample(best), (mine, theirs))


def _s_a_sample(result: Answer) -> float:
    if isinstance(result, Result):
        return result.sync_time_s
    return 1.0 / result.throughput if result.throughput > 0 else 0.0


def _remedied(best: "TrainingResult", other: "TrainingResult", among: Sequence["TrainingResult"]) -> str:
    """Return how long *other*, which does not fit, takes with the first change with which it does, against *best*."""
    change = next((each for each in other.remedies if each.step_time_s is not None and each.trains_all), None)
    if change is None or change.step_time_s is None:
        return ""
    ratio = Ratio(change.step_time_s / other.samples / _s_a_sample(best), _ratio(best, other).half_width)
    if abs(ratio.value - 1.0) < _EQUAL:  # it is the best
        return ""
    alike = f", equal within {ratio.unsure_words}" * (not ratio.is_clear and not ratio.inverse.is_clear)
    takes = f"{format_duration(change.step_time_s)}, {ratio.value:.3g} times as long{alike}"
    only = f"{name_among(best, among)} is {'faster' if ratio.is_clear else 'needed only to train without it'}"
    sizes = (change.total_bytes, other.tightest.need.available_bytes) if change.total_bytes is not None else ()
    needs = f" ({' of '.join(format_size(size, 3) for size in sizes)})" * bool(sizes)
    return f"with {change.change}, {name_among(other, among)} fits{needs} and takes {takes}: {only}"


def _because(best: Result, other: Result, name: str, called: str) -> str:
    """Return why *best*, *name*, is faster than *other*: fewer rounds, or bytes over the busiest link, its use."""
    mine, theirs = best.bottleneck, other.bottleneck
    if mine is None or theirs is None:
        return f"{name} moves no bytes" if mine is None else f"{called} waits without moving bytes"
    carried = 1 - math.log(mine.utilisation / theirs.utilisation) / math.log(other.sync_time_s / best.sync_time_s)
    rounds = (rounds_in_sequence(best.timeline.plan), rounds_in_sequence(other.timeline.plan))
    if carried <= 0.2 and rounds[0] < rounds[1]:
        return f"{name} runs {rounds[0]} round{'s' * (rounds[0] != 1)} one after the other, {called} {rounds[1]}"
    took, instead = (
        f"{format_duration(result.sync_time_s, 3)} for {format_size(use.bytes)} over {result.limiting_kind}, "
        f"{100 * use.utilisation:.3g} % in use"
        for result, use in ((best, mine), (other, theirs))
    )
    return f"{name} takes {took}; {called} {instead}"


def steps_verdict(results: Sequence["TrainingResult"]) -> list[str]:
    """Return the fastest way to run a step and why, in a few sentences; machines are compared by throughput."""
    from simulator.results.headline import lacks, unfit_words
    from simulator.results.step_confidence import may_overflow

    fitting = [result for result in results if result.fits]
    if not fitting:
        return ["none fits into the memory of its devices; asked alone, each says what would fit"]
    ranked, bare, bounds = _compared(fitting)
    best = ranked[0]
    noun = "" if not best.is_bound else "bound" if len({r.samples for r in ranked}) == 1 else "bound per sample"
    first, *more = _ranked(ranked, results, noun).splitlines()
    unfit = {name_among(each, results): each for each in results if not each.fits}
    tight = [name_among(each, results) for each in fitting if may_overflow(each, each.tightest.need.total_bytes)]
    if all(math.isfinite(each.tightest.need.available_bytes) for each in fitting):
        fits = "it fits" if len(fitting) == 1 else "both fit" if len(fitting) == 2 else "all fit"
        first += f"; {fits}{f', though {listed(tight)} may run out of memory *' if tight else ''}"
    said = [first, *more]
    said += [f"{name} {unfit_words(each)}: {'; '.join(lacks(each))}" for name, each in unfit.items()]
    said += [words for each in unfit.values() if (words := _remedied(best, each, results))]
    if bare:
        named = listed([name_among(result, results) for result in bare])
        said.append(f"{named} would need {format_duration(bare[0].step_time_s)} with exchanges on the bare links alone")
    if bounds and bounds[0].throughput > best.throughput:
        gain = f"{(bounds[0].throughput / best.throughput - 1) * 100:.2g} %"
        said.append(f"ideal schedules would gain at most {gain} ({name_among(bounds[0], results)})")
    return "\n".join(said).splitlines()
