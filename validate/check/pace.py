"""Whether measured times are within their healthy ranges, the shape of their bandwidth over sizes, and single links."""

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from statistics import NormalDist
from typing import Any, Literal, NamedTuple, TypeVar

from simulator.api import Session
from simulator.api.variants import ADAPTERS, SLOTS
from simulator.bands import evidence
from simulator.bands.composition import Composition, estimate
from simulator.console import PLAIN, Style
from simulator.constants import DEFAULT, Values
from simulator.errors import InputError
from simulator.questions.single import CopyQuestion
from simulator.questions.where import Where
from simulator.records import dataclass, replace
from simulator.results import taken
from simulator.topology.parts import NicPart
from validate.importing.other_tests import LinkFigure


class HealthyRange(NamedTuple):
    """The healthy range of measured over predicted time, which holds 80 % of ``rows`` like it on ``machines``.

    ``bend`` is how much farther from the prediction one size of a machine may be than another.  ``level`` of a machine
    and ``scatter`` of a size are standard deviations of healthy log(measured / predicted).
    """

    slowest: float
    fastest: float
    rows: int
    machines: int
    bend: float = math.inf
    level: float = 0.3
    scatter: float = 0.15


_HALF = NormalDist().inv_cdf(0.9)  # half-width of an 80 % band, in standard deviations


class HealthConstants(Values, file="health"):
    """Limits of healthy ranges, without a unit (``health.json``)."""


def healthy_range(exchange: Composition) -> HealthyRange:
    """Return the healthy range of *exchange*: its band on an unmeasured machine; raises InputError for unseen kinds.

    Small messages over Ethernet have the widest range that was seen (docs/decisions/bands.md).
    """
    limits = DEFAULT(HealthConstants)
    if not exchange.chain and not exchange.facts.unmeasured:
        most = limits.small_over_ethernet
        far = math.log(most) / _HALF
        return HealthyRange(most, 1 / most, 0, 0, level=far, scatter=far)
    found = estimate(replace(exchange, facts=replace(exchange.facts, place="")), evidence())
    if found is None:
        raise InputError("no published measurement has such an exchange, so no healthy range is known")
    spread = evidence().spread(exchange.chain)
    shared = 0.0 if spread is None else spread.shared  # the part of the variance that sizes of a machine share
    bend = math.exp((found.high - found.middle) * math.sqrt(2.0 * (1.0 - shared)))
    level = (found.high - found.low) / (2.0 * _HALF) * math.sqrt(shared)
    scatter = found.ways / (math.sqrt(2.0) * _HALF)  # found.ways is of differences between two
    seen = math.exp(found.high), math.exp(found.low), found.widest.rows, found.widest.places
    return HealthyRange(*seen, bend, max(limits.least_level, level), max(limits.least_scatter, scatter))


Pace = Literal["healthy", "slow", "faster"]
FEW = 3  # sizes from which a group decides
_LARGE_BYTES = 1 << 20  # smallest large size
_SHARE = 1 / 8  # smallest large size over a log's largest size
_NEAR = 0.95  # of the fastest healthy time; a log slightly faster is still healthy
SCATTER = 1.05  # times the slowest healthy time, or the expected one, that the runs of one machine may differ by
_FAR = 2.0  # times beyond the healthy range: no scatter of a healthy machine


@dataclass(frozen=True, slots=True)
class SizeComparison:
    """One size: measured and expected seconds, healthy range, whether it is large, and measured in place alone."""

    size_bytes: int
    measured_s: float
    expected_s: float
    band: HealthyRange
    is_large: bool
    in_place: bool = False

    @property
    def fastest_s(self) -> float:
        """The least healthy time, in seconds."""
        return self.expected_s * self.band.fastest

    @property
    def slowest_s(self) -> float:
        """The longest healthy time, in seconds."""
        return self.expected_s * self.band.slowest

    @property
    def ratio(self) -> float:
        """Measured over expected time."""
        return self.measured_s / self.expected_s

    @property
    def is_full(self) -> bool:
        """Whether bandwidth more than latency decides."""
        return self.size_bytes >= _LARGE_BYTES

    @property
    def mark(self) -> Literal["", "slow", "fast"]:
        """Whether the time is beyond the healthy range."""
        return "fast" if self.measured_s < self.fastest_s else "slow" if self.measured_s > self.slowest_s else ""


R = TypeVar("R")
Sizes = Sequence[SizeComparison]
Groups = list[tuple[bool, ...]]  # of large sizes (True), the others (False), or both together


def evenly(rows: Sequence[R], most: int) -> Sequence[R]:
    """Return at most *most* of *rows*, spread evenly, the last among them."""
    return rows[::-1][:: max(1, -(-len(rows) // most))][::-1]


def large_from(sizes: Sequence[float]) -> float:
    """Return from which of *sizes* on messages saturate links: an eighth of the last, at most the third last, 1 MiB."""
    return max(_LARGE_BYTES, min(_SHARE * sizes[-1], sizes[-FEW:][0]))


def log_pace(rows: Sizes) -> Pace:
    """Return whether *rows* are faster than healthy, at the largest sizes, or slow at these or the others."""
    first = _deciding(rows)[0]
    if statistics.median(row.measured_s / row.fastest_s for row in rows if row.is_large in first) < _NEAR:
        return "faster"
    return "slow" if slow_groups(rows) else "healthy"


def slow_groups(rows: Sizes) -> Groups:
    """Return the groups that make *rows* slow: of large sizes (True), the others (False), or both together."""
    found = slow_among(rows, rows, [row.ratio for row in rows])
    cliff = cliff_in(rows)
    beyond = [row.ratio for row in rows if cliff is not None and row.size_bytes >= cliff[1].size_bytes]
    falls = len(beyond) >= FEW and statistics.median(beyond) > SCATTER
    return found or ([(True,)] if falls else [])


def slow_among(rows: Sizes, some: Sizes, ratios: Sequence[float], scatter: float = SCATTER) -> Groups:
    """Return the groups that make *rows* slow if *some* of them take *ratios* times as long, but for *scatter*."""
    pairs = list(zip(some, ratios, strict=True))
    found = []
    for group in _deciding(rows):
        over = [ratio * row.expected_s / row.slowest_s for row, ratio in pairs if row.is_large in group]
        found += [group] if over and statistics.median(over) > scatter else []
    large, middle = (
        [ratio for row, ratio in pairs if row.is_large == is_large and row.is_full] for is_large in (True, False)
    )
    if not found and min(len(large), len(middle)) >= FEW:
        most, least = statistics.median(large), statistics.median(middle)
        bend = scatter * max(row.band.bend for row in some if row.is_full)
        found += [(True,)] if most > max(1.0, bend * least) else []
    return found


def _deciding(rows: Sizes) -> Groups:
    """Return the groups by which *rows* are judged, as values of ``is_large``."""
    large = sum(row.is_large for row in rows)
    counts = {True: large, False: len(rows) - large}
    return [(each,) for each, count in counts.items() if count >= FEW] or [(True, False)]


def outside(rows: Sizes) -> list[list[SizeComparison]]:
    """Return runs of neighbouring *rows* beyond their range on one side, one of them twice, or three in a row."""

    def is_far(row: SizeComparison) -> bool:
        return not row.fastest_s / _FAR <= row.measured_s <= row.slowest_s * _FAR

    runs = [list(run) for mark, run in groupby(rows, key=lambda row: row.mark) if mark]
    return [run for run in runs if len(run) >= FEW or any(map(is_far, run))]


_DIP = 1.3  # a dip takes this many times longer, relative to expectation, than the neighbouring sizes
_WIDEST_DIP = 3  # sizes in a row
_FALLS = 0.5  # of the highest bandwidth below, for all sizes from the cliff on
_EXPECTED = 0.8  # the same of the expected bandwidth, which must not fall there


Cliff = tuple[SizeComparison, SizeComparison]  # the last size with the full bandwidth, the first with the low one


def cliff_in(rows: Sizes) -> Cliff | None:
    """Return where bandwidth falls to half or less and stays there up to the largest size; None if it does not."""
    rates_Bps = [row.size_bytes / row.measured_s for row in rows]
    most_after = list(accumulate(reversed(rates_Bps), max))[::-1]
    for at, (before, after) in enumerate(pairwise(rows)):
        expected = after.size_bytes / after.expected_s / (before.size_bytes / before.expected_s)
        if most_after[at + 1] <= _FALLS * rates_Bps[at] and expected >= _EXPECTED:
            return before, after
    return None


def dips_in(rows: Sizes) -> Iterator[int]:
    """Yield the sizes in bytes that take much longer than those on both sides, alone or a few in a row."""
    at = 1
    while at < len(rows) - 1:
        for end in range(at + 1, min(at + 1 + _WIDEST_DIP, len(rows))):
            around = max(rows[at - 1].ratio, rows[end].ratio)
            if all(row.ratio > _DIP * around for row in rows[at:end]):
                yield from (row.size_bytes for row in rows[at:end])
                at = end
                break
        at += 1


_OF_LINE_RATE = 0.9  # least healthy share of what an adapter carries; perftest reaches 0.92 to 0.99 of the line rate


_ENDS = {"adapter": "adapter {}", "h2d": "host to GPU {}", "d2h": "GPU {} to host", "p2p": "GPU {} to GPU {}"}


class CheckedLink(NamedTuple):
    """A figure, what the machine should carry there, and the least that is healthy, in B/s."""

    figure: LinkFigure
    expected_Bps: float
    least_Bps: float

    @property
    def is_slow(self) -> bool:
        """Whether it carries less than is healthy."""
        return self.figure.measured_Bps < self.least_Bps

    @property
    def words(self) -> str:
        """What was measured."""
        return _ENDS[self.figure.kind].format(self.figure.src, self.figure.dst)


def checked_links(session: Session, where: Where, figures: Iterable[LinkFigure]) -> tuple[CheckedLink, ...]:
    """Return *figures* with what *where* should carry; raises InputError if it has no such GPU or adapter."""
    parts = [node.part for node in session.machine(where).nodes_of(0)]
    rates = [part.bandwidth * part.efficiency for part in parts if isinstance(part, NicPart)]
    found = []
    for figure in figures:
        kind, size_bytes = figure.kind, float(figure.size_bytes)
        if kind == "adapter":
            if not rates:
                raise InputError("the topology has no adapter, of which ib_write_bw measured one")
            rate = rates[figure.src % len(rates)]  # adapters that NCCL does not use are numbered too
            found.append(CheckedLink(figure, rate, _OF_LINE_RATE * rate))
            continue
        dst = figure.dst if kind == "p2p" else 0
        asked = CopyQuestion(where=where, kind=kind, size_bytes=size_bytes, src=figure.src, dst=dst)
        expected = size_bytes / session.time_s(asked)
        found.append(CheckedLink(figure, expected, expected / max(1.0, healthy_range(session.composed(asked)).slowest)))
    return tuple(found)


def sound(session: Session, where: Where, links: Sequence[CheckedLink]) -> frozenset[str]:
    """Return what *links* show to be as fast as it should: where every one was measured, and none is slow."""
    nodes = session.machine(where).nodes_of(0)
    found = set()
    for what, kinds, kind in ((ADAPTERS, ("adapter",), "nic"), (SLOTS, ("h2d", "d2h"), "gpu")):
        mine = [link for link in links if link.figure.kind in kinds]
        count = sum(node.kind == kind for node in nodes)
        if len({link.figure.src for link in mine}) >= count > 0 and not any(link.is_slow for link in mine):
            found.add(what)
    return frozenset(found)


def links_document(links: Sequence[CheckedLink]) -> dict[str, Any]:
    """Return *links* as plain data for JSON, in bytes and B/s."""
    figures = "expected_Bps healthy_from_Bps=least_Bps is_slow"
    return {"links": [{**link.figure._asdict(), **taken(link, figures)} for link in links]}


def links_text(links: Sequence[CheckedLink], style: Style = PLAIN) -> str:
    """Return *links* in words, for an answer of links alone."""
    return "".join(f"{part}\n" for line in links_words(links) for part in style.at_most(80).wrap(line, hang=2))


def links_words(links: Sequence[CheckedLink]) -> list[str]:
    """Return what is slow among *links*, the slowest first, and that the others are as expected."""
    slow = [(link.figure.measured_Bps / link.expected_Bps, link) for link in links if link.is_slow]
    lines = [
        f"{link.words}: {link.figure.measured_Bps / 1e9:.3g} GB/s, where {link.expected_Bps / 1e9:.3g} is expected"
        for _, link in sorted(slow, key=lambda each: each[0])
    ]
    fine = len(links) - len(slow)
    of = f"{fine} of {len(links)} measured link{'s' if len(links) > 1 else ''} as expected"
    return [*lines, *([of] if fine else [])]
