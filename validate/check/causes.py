"""What may make an exchange slow (:func:`causes_of`), and what NCCL's settings change (:func:`setting_effects`)."""

import math
import re
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from simulator.api import Session
from simulator.api.variants import LogQuestion, faulty_machines, fewer_links, narrower_pcie
from simulator.bands import evidence
from simulator.bands.composition import estimate
from simulator.errors import InputError
from simulator.questions.collective import SENDING, CollectiveQuestion
from simulator.questions.where import NCCL_TODAY, SlowLink, version_words
from simulator.records import dataclass, own_data, replace
from simulator.topology import Topology
from simulator.units import format_duration
from validate.check import pace as healthy
from validate.check.pace import SizeComparison, Sizes

MOST_CAUSES = 34  # approximate number, for progress bars
_HALF = 0.5  # a card in a slot of half the width, which NCCL knows where it is on PCIe
_ERAS = ((2, 18), NCCL_TODAY)
_AMISS: Mapping[str, Any] = own_data("validate.check", "causes.yaml")
SHOWN = ", as NCCL reports"  # how words of a cause end that the log shows to be there


class Cause(NamedTuple):
    """A possible cause in words, its question, and what would show it; ``is_fault``: not another choice of NCCL's."""

    words: str
    question: CollectiveQuestion
    measure: str
    is_fault: bool = True


def causes_of(session: Session, asked: LogQuestion, fixed: Collection[str]) -> Iterator[Cause]:
    """Yield causes on the topology of the question *asked*, but those that *fixed*, what its log shows, decides."""
    topology, question = asked.topology, asked.question

    def there(words: str, topology: Topology, links: tuple[SlowLink, ...], measure: str) -> Iterator[Cause]:
        where = replace(question.where, topology=f"{question.where.topology} with {words}", slow_links=links)
        session.know(where, topology)
        with suppress(InputError):
            session.machine(where)
            yield Cause(words, replace(question, where=where), measure)

    for faulty in faulty_machines(topology):
        left = [reason for reason in faulty.reasons if reason not in fixed]
        if left and not faulty.decided_by & set(fixed):
            shown = any(f"no {each}" in fixed for each in faulty.decided_by)
            words = f"{faulty.what} ({', '.join(left)}){SHOWN if shown else ''}"
            yield from there(words, faulty.topology, (), faulty.measure)
    for words, links, left_of, measure in _slow_links(session, question):
        link, narrow = links[0], topology
        ends = link.ends.split("-")
        if left_of is not None:
            narrow = fewer_links(topology, round(link.factor * left_of), ends)
        elif link.factor == _HALF and len(links) == 1:
            narrow = narrower_pcie(topology, link.factor, ends)
        yield from there(words, narrow, links if narrow == topology else (), measure)
    for decided_by, cause in _choices(question):
        if not decided_by & set(fixed):
            yield cause


def _choices(question: CollectiveQuestion) -> Iterator[tuple[set[str], Cause]]:
    for choice in _AMISS["choices"] if question.collective not in SENDING else ():
        if question.nvls or "nvls" not in choice["says"]:
            asked, is_fault = replace(question, **choice["says"]), choice.get("is_fault", False)
            yield {*choice["decided_by"]}, Cause(choice["words"], asked, choice["shown_by"], is_fault)
    for version in _ERAS:
        if version != question.software.nccl:
            words = f"NCCL {version_words(version)} in place of {version_words(question.software.nccl)}"
            asked = replace(question, software=replace(question.software, nccl=version))
            yield {"version"}, Cause(words, asked, "the version that NCCL_DEBUG=VERSION prints", is_fault=False)


_SlowLinks = tuple[str, tuple[SlowLink, ...], int | None, str]
"""A cause in words, its links, the number of parallel links of which a share is left, if so, and what shows it."""


def _slow_links(session: Session, question: CollectiveQuestion) -> Iterator[_SlowLinks]:
    """Yield a slow or missing link of each kind at GPUs and adapters, then a machine of several with slow adapters."""
    machine = session.machine(question.where)
    seen = set()
    adapters = []  # of the first machine
    for link in machine.links:
        first, second = machine.nodes[link.src], machine.nodes[link.dst]
        sort, ends = (first.kind, second.kind, link.kind, link.count), f"{first.name}-{second.name}"
        adapters += [ends] if first.kind == "nic" and first.host == 0 else []
        if first.host != 0 or sort in seen:
            continue
        seen.add(sort)
        down = link.count // 2
        for fault in _AMISS["links"].get(f"{first.kind} {second.kind}", ()):
            told = f"{fault['words'].format(down, link.count)}, as {ends}"
            if "share" in fault:
                yield told, (SlowLink(ends, fault["share"]),), None, fault["shown_by"]
            elif down:
                yield told, (SlowLink(ends, 1.0 - down / link.count),), link.count, fault["shown_by"]
    for fault in _AMISS["adapters"] if machine.n_hosts > 1 and len(adapters) > 1 else ():
        links = tuple(SlowLink(each, fault["share"]) for each in adapters)
        yield f"{fault['words']}, as node0", links, None, fault["shown_by"]


_MOST_SIZES = 4  # sizes at which other settings are simulated: the largest


class SettingEffect(NamedTuple):
    """What one setting does at a size: the expected seconds as the log ran, and otherwise.

    ``is_set``: the log sets it, and ``other_s`` is without it; else the log does not, and ``other_s`` is with it.
    ``gain_low``, ``gain_high`` are the 80 % band of ``time_s`` over ``other_s``.
    """

    setting: str
    is_set: bool
    size_bytes: int
    time_s: float
    other_s: float
    gain_low: float
    gain_high: float


def setting_effects(
    session: Session,
    asked: LogQuestion,
    rows: Sizes,
    asked_with: Callable[[dict[str, str]], LogQuestion],
    settings: dict[str, str],
) -> tuple[SettingEffect, ...]:
    """Return what a log's *settings* change by more than the model's error, and which others would gain as much."""

    def effects(other: LogQuestion, setting: str, *, is_set: bool) -> Iterator[SettingEffect]:
        """Yield the effect at each of the largest sizes where it is more than the model's error between two ways."""
        for row in rows[-_MOST_SIZES:]:
            there = replace(other.question, size_bytes=float(row.size_bytes))
            other_s = session.time_s(there)
            known = estimate(session.composed(there), evidence())
            if known is None:
                continue
            gain, width = row.expected_s / other_s, math.exp(known.ways)
            if gain > width or (is_set and gain < 1 / width):
                times = row.size_bytes, row.expected_s, other_s
                yield SettingEffect(setting, is_set, *times, gain / width, gain * width)

    found = []
    for name, value in settings.items():
        if any(each.startswith(f"{name}=") for each in asked.known):
            without = {key: value for key, value in settings.items() if key != name}
            found += list(effects(asked_with(without), f"{name}={value}", is_set=True))[-1:]
    where, sends = asked.question.where, asked.question.collective in SENDING
    there = {"all", "sends" if sends else "collectives", *(["several machines"] if (where.nodes or 1) > 1 else [])}
    open_ = [each for each in _AMISS["settings"] if each["of"] in there and settings.keys().isdisjoint(each["names"])]
    for name, value in ((each["names"][0], value) for each in open_ for value in each["values"]):
        with suppress(InputError):
            gains = effects(asked_with({**settings, name: value}), f"{name}={value}", is_set=False)
            found += sorted(gains, key=lambda each: each.other_s / each.time_s)[:1]
    return tuple(found)


_CAUSE_SIZES = 10  # sizes at which causes are simulated
_HALVED = 0.5  # largest error with an explanation, relative to the error without
_LOWERED = 0.9  # the same if the log is healthy with it
_SAME = 0.02  # smaller relative differences in time count as none
_SIZE = 0.15  # difference of times that the model's error of a size hides
_FREEDOM = 3.0
_OFFSETS = tuple(step / 20.0 for step in range(-30, 31))
CLEARLY = 2.0  # difference of the logarithms of two likelihoods, from which the data speak for the first (Jeffreys)
_BY_CHANCE = 3.0  # the same for the best of some twenty mechanisms, of which one in twenty may be as likely by chance


@dataclass(frozen=True, slots=True)
class FaultExplanation:
    """A possible fault in words, the error that remains with it, and its predicted seconds by size.

    ``error`` is the root mean square of log(measured / predicted), as a relative error, over all sizes but the quarter
    that fits worst.  ``alike`` are other causes that no time tells from it, the likelier first; ``measure`` is what
    would show it; without ``is_fault`` it is a choice of NCCL's.  ``behind`` is how much less likely it is than the
    first, in the logarithm of the likelihood.
    """

    words: str
    measure: str
    time_s: tuple[tuple[int, float], ...]
    is_fault: bool = True
    error: float = 0.0
    alike: tuple[str, ...] = ()
    behind: float = 0.0

    def left(self, some: Sizes) -> list[float]:
        """Return measured over predicted times of *some* sizes, those of its times."""
        return [row.measured_s / time_s for row, (_, time_s) in zip(some, self.time_s, strict=True)]

    def named(self, spelt: Callable[[str], str]) -> "FaultExplanation":
        """Return the same in words that *spelt* changes."""
        return replace(self, words=spelt(self.words), alike=tuple(map(spelt, self.alike)), measure=spelt(self.measure))


class Explanations(NamedTuple):
    """The causes that explain a log, the likeliest first, and the number tried; whether a fault is clearly likelier."""

    found: tuple[FaultExplanation, ...] = ()
    tried: int = 0
    is_clear: bool = False


def explained(
    session: Session, asked: LogQuestion, rows: Sizes, fixed: Collection[str], step_done: Callable[[str], None]
) -> Explanations:
    """Return the causes that explain the measured times (docs/check.md); none is tried for a log that looks healthy."""
    some = healthy.evenly(rows, _CAUSE_SIZES)

    def timed(
        words: str, measure: str, time_of: Callable[[SizeComparison], float], *, is_fault: bool = True
    ) -> FaultExplanation:
        return FaultExplanation(words, measure, tuple((row.size_bytes, time_of(row)) for row in some), is_fault)

    def tried_causes() -> Iterator[FaultExplanation]:
        cliff = healthy.cliff_in(rows)
        if cliff is not None and session.machine(asked.question.where).n_hosts > 1:
            before_bytes, after_bytes = (row.size_bytes for row in cliff)
            beyond = statistics.median(row.ratio for row in rows if row.size_bytes >= after_bytes)
            level = statistics.median(row.ratio for row in rows if row.size_bytes <= before_bytes)
            words = "a cliff over a size (switch buffers, PFC or ECN not set, packets lost)"
            shown = "counters of drops and pauses (`ethtool -S`, `perfquery`), fewer machines"
            yield timed(words, shown, lambda row: row.expected_s * (beyond if row.size_bytes >= after_bytes else level))
        small = [row.measured_s - row.expected_s for row in rows if not row.is_full]
        longer_s = statistics.median(small) if len(small) >= healthy.FEW else 0.0
        if longer_s > 0.0:
            words = f"each exchange {format_duration(longer_s, digits=2)} longer, however large"
            words += " (processes on the wrong cores or socket, a busy host)"
            hosts = "`taskset -p` and `numactl -s` of each process, `top` on each host"
            # on sound hosts too, small sizes are longer
            yield timed(words, hosts, lambda row: row.expected_s + longer_s, is_fault=False)
        for cause in causes_of(session, asked, fixed):
            step_done(cause.words)
            with suppress(InputError):
                ask = partial(replace, cause.question)
                times = {row: session.time_s(ask(size_bytes=float(row.size_bytes))) for row in some}
                yield timed(cause.words, cause.measure, times.__getitem__, is_fault=cause.is_fault)

    ratios = [row.ratio for row in some]
    error, slow = _error(ratios), healthy.slow_among(rows, some, ratios)
    healthy_unlikely = _unlikely(some, ratios)
    at_edge = healthy.slow_among(rows, rows, [row.ratio for row in rows], scatter=1.0)
    if healthy_unlikely < _BY_CHANCE and not slow and not at_edge:
        return Explanations()
    within = max(math.log(row.slowest_s / row.expected_s) for row in some)
    every = list(tried_causes())
    tried: list[tuple[float, FaultExplanation]] = []
    for each in every:
        pairs = zip(some, each.time_s, strict=True)
        if any(abs(time_s / row.expected_s - 1.0) >= _SAME for row, (_, time_s) in pairs):
            tried.append((_unlikely(some, each.left(some)), each))
    sound = min([healthy_unlikely, *(unlikely for unlikely, each in tried if not each.is_fault)])
    found: list[tuple[float, FaultExplanation]] = []
    is_clear = False
    for unlikely, each in tried:
        ratios = each.left(some)
        left = _error(ratios, without=len(ratios) // 4)
        cures = left <= _LOWERED * error and slow and not healthy.slow_among(rows, some, ratios)
        clear = each.is_fault and unlikely < sound - _BY_CHANCE
        is_clear = is_clear or clear
        if left <= within and (left <= _HALVED * error or cures or clear):
            shown = CLEARLY if each.words.endswith(SHOWN) else 0.0
            found.append((unlikely - shown, replace(each, error=math.expm1(left))))
    found.sort(key=lambda each: (round(each[0], 6), each[1].words))
    return Explanations(tuple(_joined(found)), len(every), is_clear and some[-1].ratio > healthy.SCATTER)


def _error(ratios: Sequence[float], without: int = 0) -> float:
    """Return the root mean square of the logarithms of *ratios*, *without* so many that are farthest from 1."""
    squares = sorted(math.log(ratio) ** 2 for ratio in ratios)
    return math.sqrt(statistics.fmean(squares[: len(squares) - without]))


def _unlikely(some: Sizes, ratios: Sequence[float]) -> float:
    """Return how unlikely *ratios* of *some* sizes are: minus the logarithm of the likelihood, but for a constant."""
    errors = [(math.log(ratio), row.band.scatter) for row, ratio in zip(some, ratios, strict=True)]
    level = statistics.median(row.band.level for row in some)
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
