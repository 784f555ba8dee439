"""What the flows of an activity carry: parts of the buffer that a collective is about.

The engine needs bytes alone.  Whoever runs a plan on real devices needs to know which bytes, and whether the receiver
adds them or stores them.  Parts are exact fractions of the buffer, so that ranks agree on every boundary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

__all__ = ["WHOLE", "Carried", "Carries", "Region", "block", "cut", "joined", "together"]

Region = tuple[tuple[Fraction, Fraction], ...]
"""Stretches of the buffer, each from and to a fraction of it."""

WHOLE: Region = ((Fraction(0), Fraction(1)),)


class Carried(NamedTuple):
    """What one flow carries; ``reduce``: it is added where it arrives, and stored otherwise."""

    region: Region
    reduce: bool = False


Carries = Callable[[int], Sequence[Carried]]
"""Gives what each flow of an activity carries in that repetition of it, from 0, in the order of its flows."""


def block(number: int, count: int) -> Region:
    """Return the part *number* of *count* equal ones of the buffer."""
    return ((Fraction(number, count), Fraction(number + 1, count)),)


def joined(regions: Iterable[Region]) -> Region:
    """Return the stretches of all *regions*, in their order; those that touch become one."""
    found: list[tuple[Fraction, Fraction]] = []
    for start, stop in (stretch for region in regions for stretch in region):
        if found and found[-1][1] == start:
            found[-1] = found[-1][0], stop
        elif start < stop:
            found.append((start, stop))
    return tuple(found)


def cut(region: Region, start: Fraction, stop: Fraction) -> Region:
    """Return what lies between the fractions *start* and *stop* of *region*, its stretches laid end to end."""
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
    """Return what activities that became one carry, in their order; None where it is not known of all."""
    known = [each for each in carries if each is not None]
    if len(known) < len(carries):
        return None
    return lambda repetition: [carried for each in known for carried in each(repetition)]
