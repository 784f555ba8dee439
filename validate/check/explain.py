"""Which causes explain a log's times, the likeliest first: :func:`explained`.

A cause is judged by the shape over sizes and by the level: measured over its predicted time, as a logarithm, is the sum
of one error of the machine (normal) and one of each size (Student's t with three degrees of freedom), as wide as those
of published measurements (:class:`validate.check.pace.LogErrors`).  Causes whose times differ by less than the model's
error of a size are one explanation; of several degrees of one mechanism only the likeliest is.  A log is slow, however
mildly, if a fault is clearly likelier than that there is none and that NCCL chose otherwise than predicted.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from simulator.api import Session
from simulator.errors import InputError
from simulator.questions.collective import CollectiveQuestion
from simulator.records import dataclass, replace
from simulator.topology import Topology
from simulator.units import format_duration
from validate.check import pace as healthy
from validate.check.causes import SHOWN, causes_of
from validate.check.pace import SizeComparison

_MOST_SIZES = 10  # sizes at which causes are simulated
_HALVED = 0.5  # largest error with an explanation, relative to the error without
_LOWERED = 0.9  # the same if the log is healthy with it
_SAME = 0.02  # smaller relative differences in time count as none
_SIZE = 0.15  # difference of times that the model's error of a size hides
_FREEDOM = 3.0
_OFFSETS = tuple(step / 20.0 for step in range(-30, 31))
_CLEARLY = 2.0  # difference of the logarithms of two likelihoods, from which the data speak for the first (Jeffreys)
_BY_CHANCE = 3.0  # the same for the best of some twenty mechanisms, of which one in twenty may be as likely by chance


@dataclass(frozen=True, slots=True)
class FaultExplanation:
    """A possible fault in words, the error that remains with it, and its predicted seconds by size.

    ``error`` is the root mean square of log(measured / predicted), as a relative error, over all sizes but the quarter
    that fits worst.  ``alike`` are other causes that no time tells from it, the likelier first; ``measure`` is what
    would show it; ``behind`` is how much less likely it is than the first, in the logarithm of the likelihood.
    """

    words: str
    error: float
    time_s: tuple[tuple[int, float], ...]
    alike: tuple[str, ...] = ()
    measure: str = ""
    behind: float = 0.0

    @property
    def is_behind(self) -> bool:
        """Whether it fits clearly worse than the first."""
        return self.behind > _CLEARLY

    def named(self, spelt: Callable[[str], str]) -> FaultExplanation:
        """Return the same in words that *spelt* changes."""
        alike = tuple(map(spelt, self.alike))
        return replace(self, words=spelt(self.words), alike=alike, measure=spelt(self.measure))


class Explanations(NamedTuple):
    """The causes that explain a log, the likeliest first, and the number tried; whether a fault is clearly likelier."""

    found: tuple[FaultExplanation, ...] = ()
    tried: int = 0
    is_clear: bool = False


def explained(
    session: Session,
    topology: Topology,
    question: CollectiveQuestion,
    rows: Sequence[SizeComparison],
    fixed: Collection[str],
    step_done: Callable[[str], None],
) -> Explanations:
    """Return the causes that explain the measured times.

    A cause explains them if what it leaves is within the band, and it leaves at most half of the error, or less of it
    and the log would be healthy on such a machine, or it is a fault clearly likelier than none.  None is tried if the
    times are so likely on a healthy machine that none can be, and the log is neither slow nor at the edge of what
    healthy logs reach.
    """
    step = max(1, -(-len(rows) // _MOST_SIZES))
    some = rows[::-1][::step][::-1]
    ratios = [row.ratio for row in some]
    error, slow = _error(ratios), healthy.is_slow(rows, some, ratios)
    healthy_unlikely = _unlikely(some, ratios)
    at_edge = healthy.is_slow(rows, rows, [row.ratio for row in rows], scatter=1.0)
    if healthy_unlikely < _BY_CHANCE and not slow and not at_edge:
        return Explanations()
    within = max(math.log(row.slowest_s / row.expected_s) for row in some)
    every = list(_times_of(session, topology, question, rows, some, fixed, step_done))
    tried: list[tuple[float, _TriedCause]] = []
    for each in every:
        if any(abs(time_s / row.expected_s - 1.0) >= _SAME for row, time_s in zip(some, each.times, strict=True)):
            tried.append((_unlikely(some, each.left(some)), each))
    sound = min([healthy_unlikely, *(unlikely for unlikely, each in tried if not each.is_fault)])
    found: list[tuple[float, FaultExplanation]] = []
    is_clear = False
    for unlikely, each in tried:
        ratios = each.left(some)
        left = _error(ratios, without=len(ratios) // 4)
        cures = left <= _LOWERED * error and slow and not healthy.is_slow(rows, some, ratios)
        clear = each.is_fault and unlikely < sound - _BY_CHANCE
        is_clear = is_clear or clear
        if left <= within and (left <= _HALVED * error or cures or clear):
            pairs = tuple((row.size_bytes, time_s) for row, time_s in zip(some, each.times, strict=True))
            shown = _CLEARLY if each.words.endswith(SHOWN) else 0.0
            explanation = FaultExplanation(each.words, math.expm1(left), pairs, measure=each.measure)
            found.append((unlikely - shown, explanation))
    found.sort(key=lambda each: (round(each[0], 6), each[1].words))
    return Explanations(tuple(_joined(found)), len(every), is_clear and some[-1].ratio > healthy.SCATTER)


class _TriedCause(NamedTuple):
    """A cause in words, what would show it, its times by size, and whether it is a fault, and no choice of NCCL's."""

    words: str
    measure: str
    times: Sequence[float]
    is_fault: bool = True

    def left(self, some: Sequence[SizeComparison]) -> list[float]:
        """Return measured over predicted time at *some* sizes."""
        return [row.measured_s / time_s for row, time_s in zip(some, self.times, strict=True)]


def _times_of(
    session: Session,
    topology: Topology,
    question: CollectiveQuestion,
    rows: Sequence[SizeComparison],
    some: Sequence[SizeComparison],
    fixed: Collection[str],
    step_done: Callable[[str], None],
) -> Iterator[_TriedCause]:
    """Yield causes with their times at *some* of the sizes."""
    cliff = healthy.cliff_in(rows)
    if cliff is not None and session.machine(question.where).n_hosts > 1:
        beyond = statistics.median(row.ratio for row in rows if row.size_bytes >= cliff.after_bytes)
        level = statistics.median(row.ratio for row in rows if row.size_bytes <= cliff.before_bytes)
        times = [row.expected_s * (beyond if row.size_bytes >= cliff.after_bytes else level) for row in some]
        words = "a cliff over a size (switch buffers, PFC or ECN not set, packets lost)"
        yield _TriedCause(words, "counters of drops and pauses (`ethtool -S`, `perfquery`), fewer machines", times)
    small = [row.measured_s - row.expected_s for row in rows if not row.is_full]
    longer_s = statistics.median(small) if len(small) >= healthy.FEW else 0.0
    if longer_s > 0.0:
        words = f"each exchange {format_duration(longer_s, digits=2)} longer, however large"
        words += " (processes on the wrong cores or socket, a busy host)"
        hosts = "`taskset -p` and `numactl -s` of each process, `top` on each host"
        times = [row.expected_s + longer_s for row in some]
        yield _TriedCause(words, hosts, times, is_fault=False)  # on sound hosts too, small sizes are longer
    for cause in causes_of(session, topology, question, fixed):
        step_done(cause.words)
        with suppress(InputError):
            times = [session.time_s(replace(cause.question, size_bytes=float(row.size_bytes))) for row in some]
            yield _TriedCause(cause.words, cause.measure, times, cause.is_fault)


def _error(ratios: Sequence[float], without: int = 0) -> float:
    """Return the root mean square of the logarithms of *ratios*, *without* so many that are farthest from 1."""
    squares = sorted(math.log(ratio) ** 2 for ratio in ratios)
    return math.sqrt(statistics.fmean(squares[: len(squares) - without]))


def _unlikely(some: Sequence[SizeComparison], ratios: Sequence[float]) -> float:
    """Return how unlikely *ratios* of *some* sizes are: minus the logarithm of the likelihood, but for a constant."""
    errors = [(math.log(ratio), row.band.errors.scatter) for row, ratio in zip(some, ratios, strict=True)]
    level = statistics.median(row.band.errors.level for row in some)
    found = []
    for offset in _OFFSETS:
        of_sizes = (math.log1p(((error - offset) / scatter) ** 2 / _FREEDOM) for error, scatter in errors)
        found.append(offset**2 / (2 * level**2) + (_FREEDOM + 1) / 2 * sum(of_sizes))
    return min(found)


def _joined(found: Sequence[tuple[float, FaultExplanation]]) -> Iterator[FaultExplanation]:
    """Yield explanations, each with those *found* that are alike; all are in order, with how unlikely they are."""

    def difference(one: FaultExplanation, other: FaultExplanation) -> float:
        pairs = zip(one.time_s, other.time_s, strict=True)
        return math.sqrt(statistics.fmean(math.log(a / b) ** 2 for (_, a), (_, b) in pairs))

    groups: list[list[tuple[float, FaultExplanation]]] = []
    for unlikely, each in found:
        for group in groups:
            if _mechanism(each) == _mechanism(group[0][1]):
                break  # in a less likely degree
            if difference(group[0][1], each) < _SIZE:
                group.append((unlikely, each))
                break
        else:
            groups.append([(unlikely, each)])
    for (unlikely, first), *rest in groups:
        yield replace(first, alike=tuple(each.words for _, each in rest), behind=unlikely - groups[0][0][0])


_DEGREE = re.compile(r"\b(?:\d+|all|half|a quarter|an eighth)\b", re.ASCII)


def _mechanism(each: FaultExplanation) -> str:
    """Return what is amiss in words without its degree: how many adapters, at which rate, over which interface."""
    what = each.words.partition(" (")[0].partition(", as ")[0]
    return _DEGREE.sub("", re.sub(r" over one interface of \d+ Gbit/s", "", what))
