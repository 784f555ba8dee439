"""The data that an activity's flows carry: parts of a collective's buffer.

The engine needs only byte counts.  To run a plan on real devices, one needs to know which bytes, and whether the
receiver adds or stores them.  Parts are exact fractions of the buffer, so ranks agree on every boundary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

Region = tuple[tuple[Fraction, Fraction], ...]
"""Intervals of the buffer, as (start, stop) fractions of it."""

WHOLE: Region = ((Fraction(0), Fraction(1)),)


class Carried(NamedTuple):
    """The data of one flow; the receiver adds it if ``reduce``, and stores it otherwise."""

    region: Region
    reduce: bool = False


Carries = Callable[[int], Sequence[Carried]]
"""Returns the data of each flow, in the order of the activity's flows, given the repetition (from 0)."""


def block(number: int, count: int) -> Region:
    """Return part *number* (from 0) of *count* equal parts of the buffer."""
    return ((Fraction(number, count), Fraction(number + 1, count)),)


def joined(regions: Iterable[Region]) -> Region:
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
