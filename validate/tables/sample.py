"""Which rows calibrate a device: chosen by their questions, before any measured time is read.

The rows of a device are ordered by the SHA-256 of what they ask (every column that a
prediction sees), and the first so many distinct ones are taken.  So the choice depends neither
on measured times nor on the order of the table, is the same on every run, and is random as to
operator and size: no stratification, which would need a decision what the strata are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256

__all__ = ["choose", "digest"]

_DIGITS = 16  # of the digest: 2^64 is plenty for tables of 10^5 rows


def digest(asked: Mapping[str, str]) -> str:
    """Return the first digits of the SHA-256 of what a row asks, whatever the order of its columns."""
    text = "\x1e".join(f"{column}\x1f{asked[column].strip()}" for column in sorted(asked) if asked[column].strip())
    return sha256(text.encode()).hexdigest()[:_DIGITS]


def choose(digests: Iterable[str], count: int) -> frozenset[str]:
    """Return the digests of *count* distinct questions, at most half of those there are."""
    distinct = sorted(set(digests))
    return frozenset(distinct[: min(count, len(distinct) // 2)])
