"""What a flow carries, parts of a collective's buffer, and what limits it, shares of links' rates.

The engine needs only byte counts.  To run a plan on real devices, one needs to know which bytes, and whether the
receiver adds or stores them.  Parts are exact fractions of the buffer, so ranks agree on every boundary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

Region = tuple[tuple[Fraction, Fraction], ...]
"""Intervals of the buffer, as (start, stop) fractions of it."""

WHOLE: Region = ((Fraction(0), Fraction(1)),)


class FlowData(NamedTuple):
    """The data of one flow; the receiver adds it if ``reduce``, and stores it otherwise."""

    region: Region
    reduce: bool = False


Carries = Callable[[int], Sequence[FlowData]]
"""Returns the data of each flow, in the order of the activity's flows, given the repetition (from 0)."""


def block(number: int, count: int) -> Region:
    """Return part *number* (from 0) of *count* equal parts of the buffer."""
    return ((Fraction(number, count), Fraction(number + 1, count)),)


def joined_regions(regions: Iterable[Region]) -> Region:
    """Return the intervals of all *regions*, in order; adjacent ones are merged."""
    found: list[tuple[Fraction, Fraction]] = []
    for start, stop in (stretch for region in regions for stretch in region):
        if found and found[-1][1] == start:
            found[-1] = found[-1][0], stop
        elif start < stop:
            found.append((start, stop))
    return tuple(found)


def cut(region: Region, start: Fraction, stop: Fraction) -> Region:
    """Return the part of *region* between the fractions *start* and *stop* of its total length."""
    whole = sum((b - a for a, b in region), Fraction(0))
    low, high = start * whole, stop * whole
    found, passed = [], Fraction(0)
    for a, b in region:
        first, last = max(low - passed, Fraction(0)), min(high - passed, b - a)
        if first < last:
            found.append((a + first, a + last))
        passed += b - a
    return tuple(found)


def together(carries: Sequence[Carries | None]) -> Carries | None:
    """Return the data of several activities merged into one, in order; None if any of them is unknown."""
    known = [each for each in carries if each is not None]
    if len(known) < len(carries):
        return None
    return lambda repetition: [carried for each in known for carried in each(repetition)]


_NOTHING: Mapping[int, float] = {}


class LinkLimit(NamedTuple):
    """Seconds that a link on ``resource`` takes at least: ``fixed_s``, and ``full_s`` at its rate ``rate_Bps``."""

    resource: int
    fixed_s: float
    full_s: float
    rate_Bps: float

    def seconds(self, lost_Bps: Mapping[int, float]) -> float:
        """Return its seconds with *lost_Bps* less; 0 for a link that gives nothing, which stops what waits for it."""
        lost = lost_Bps.get(self.resource)
        if lost is None:
            return self.fixed_s + self.full_s
        left_Bps = self.rate_Bps - lost
        return self.fixed_s + self.full_s * self.rate_Bps / left_Bps if left_Bps > 0.0 else 0.0


class Filling(NamedTuple):
    """The seconds in which first chunks fill a pipeline: ``share`` of those that the slowest of links takes.

    ``links`` has the limit of one of equal links, how far apart the numbers of their capacities are from host to host,
    and these hosts, the first of which has that one.
    """

    share: float
    links: tuple[tuple[LinkLimit, int, Sequence[int]], ...]

    def seconds(self, lost_Bps: Mapping[int, float]) -> float:
        """Return the seconds that it takes when capacities give *lost_Bps* less."""
        longest_s = 0.0
        for limit, stride, hosts in self.links:
            slowed = 0
            for resource in lost_Bps:
                host, off = divmod(resource - limit.resource, stride) if stride else (0, resource - limit.resource)
                if not off and hosts[0] + host in hosts:
                    slowed += 1
                    longest_s = max(longest_s, limit._replace(resource=resource).seconds(lost_Bps))
            if slowed < len(hosts):
                longest_s = max(longest_s, limit.seconds(_NOTHING))
        return self.share * longest_s


class FlowLimits(NamedTuple):
    """Limits of a flow of ``wire_bytes`` in all rounds: its own rate, and each of ``links``, ``filling`` longer."""

    own_Bps: float
    wire_bytes: float
    links: tuple[LinkLimit, ...]
    filling: Filling = Filling(0.0, ())

    def cap_Bps(self, lost_Bps: Mapping[int, float]) -> float:  # noqa: N802  units keep their case
        """Return the largest rate while resources give *lost_Bps* less than they have, in B/s."""
        longest_s = max((limit.seconds(lost_Bps) for limit in self.links), default=0.0)
        longest_s += self.filling.seconds(lost_Bps)
        return min(self.own_Bps, self.wire_bytes / longest_s) if longest_s > 0.0 else self.own_Bps
