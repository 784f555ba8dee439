"""Aligned columns of figures with units, for terminal output."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple

from simulator.units import BANDWIDTHS, DURATIONS, SIZES

_Scale = tuple[float, str]
_LONG_RING = 24  # parts shown


class PlainTable(NamedTuple):
    """The headings and rows of a table of text.

    ``right``: which columns hold numbers; ``marks``: lines before rows, by their number; ``more``: a line below.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[bool]
    marks: Mapping[int, str] = {}
    more: str = ""


class Heading(str):
    """A line above the lines and tables that it names."""

    __slots__ = ()
    is_heading = True


def rate_words(number: float) -> str:
    """Return *number* with four digits, without an exponent."""
    return f"{number:,.0f}" if number >= 1000 else f"{number:.4g}"


def three_digits(number: float) -> str:
    """Return *number* with three digits, without an exponent."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def percent(share: float) -> str:
    """Return the fraction *share* as a percentage."""
    return f"{share * 100:.1f} %"


def column_of(values: Sequence[float], scales: Sequence[_Scale], *, by_least: bool = False) -> list[str]:
    """Return *values* as text in one common unit of *scales*, with three or four digits."""
    some = [abs(v) for v in values if v]
    if not some:
        return [f"0 {scales[-1][1]}" for _ in values]
    least = min(some)
    if max(some) > 1e4 * least:  # the range is too wide for one unit
        return [column_of([v], scales)[0] for v in values]
    most = least if by_least else max(some)
    scale, unit = next(((s, u) for s, u in scales if most >= s * 0.99995 and least >= s / 100), scales[-1])
    digits = min(3 if least >= 0.1 * scale else 4, max(0, 3 - math.floor(math.log10(least / scale) + 1e-4)))
    if unit == "B" and all(v == int(v) for v in values):
        digits = 0
    return [f"{v / scale:.{digits}f} {unit}" for v in values]


duration_column = partial(column_of, scales=DURATIONS, by_least=True)
bandwidth_column = partial(column_of, scales=BANDWIDTHS)
size_column = partial(column_of, scales=SIZES)


def shortened_ring(ring: Sequence[int]) -> str:
    """Return the numbers of *ring*, runs of four or more as ``first..last``, the middle of a long ring left out."""
    parts: list[str] = []
    i = 0
    while i < len(ring):
        step = ring[i + 1] - ring[i] if i + 1 < len(ring) else 0
        end = i
        while step in (1, -1) and end + 1 < len(ring) and ring[end + 1] - ring[end] == step:
            end += 1
        run = end - i >= 3
        parts.append(f"{ring[i]}..{ring[end]}" if run else str(ring[i]))
        i = end + 1 if run else i + 1
    if len(parts) > _LONG_RING:
        parts[_LONG_RING - 5 : -4] = ["..."]
        parts.append(f"({len(ring)} GPUs)")
    return " ".join(parts)


def ranges(numbers: Iterable[int]) -> str:
    """Return *numbers* in ascending order, consecutive ones as a range: ``0-4,7``."""
    alike = groupby(enumerate(sorted(numbers)), lambda each: each[1] - each[0])
    runs = ([number for _, number in run] for _, run in alike)
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
