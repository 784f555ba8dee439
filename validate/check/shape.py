"""The shape of measured bandwidth over sizes: where it falls and stays low, and where it only dips."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from validate.check.pace import SizeComparison

_DIP = 1.3  # a dip takes this many times longer, relative to expectation, than the neighbouring sizes
_WIDEST_DIP = 3  # sizes in a row
_FALLS = 0.5  # of the highest bandwidth below, for all sizes from the cliff on
_EXPECTED = 0.8  # the same of the expected bandwidth, which must not fall there


class Cliff(NamedTuple):
    """The last size with the full bandwidth and the first with the low one, each with its measured seconds."""

    before_bytes: int
    before_s: float
    after_bytes: int
    after_s: float


def cliff_in(rows: Sequence[SizeComparison]) -> Cliff | None:
    """Return where bandwidth falls to half or less and stays there up to the largest size; None if it does not."""
    lowest_after = [0.0] * len(rows)
    most = 0.0
    for at in reversed(range(len(rows))):
        most = max(most, rows[at].size_bytes / rows[at].measured_s)
        lowest_after[at] = most
    for at in range(1, len(rows)):
        before, after = rows[at - 1], rows[at]
        expected = after.size_bytes / after.expected_s / (before.size_bytes / before.expected_s)
        if lowest_after[at] <= _FALLS * before.size_bytes / before.measured_s and expected >= _EXPECTED:
            return Cliff(before.size_bytes, before.measured_s, after.size_bytes, after.measured_s)
    return None


def dips_in(rows: Sequence[SizeComparison]) -> Iterator[int]:
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
