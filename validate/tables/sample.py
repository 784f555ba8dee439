"""The choice of rows that calibrate a device, made from their questions before any measured time is read.

The rows of a device are ordered by the SHA-256 of their question (every column that a prediction reads), and the first
distinct ones are taken.  The choice thus depends neither on measured times nor on the order of the table, is the same
on every run, and is random in operator and size.  It is not stratified, as that would require a choice of strata.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256

_DIGITS = 16  # of the digest: 64 bits are plenty for tables of 10^5 rows


def digest(asked: Mapping[str, str]) -> str:
    """Return the first digits of the SHA-256 of a row's question; the order of its columns does not matter."""
    text = "\x1e".join(f"{column}\x1f{asked[column].strip()}" for column in sorted(asked) if asked[column].strip())
    return sha256(text.encode()).hexdigest()[:_DIGITS]


def choose(digests: Iterable[str], count: int) -> frozenset[str]:
    """Return the digests of *count* distinct questions, but of at most half of them."""
    distinct = sorted(set(digests))
    return frozenset(distinct[: min(count, len(distinct) // 2)])
