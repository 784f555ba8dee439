"""Choices by hash: a share of shapes, the same on all devices and in all frameworks; rows that calibrate a device.

The latter are the first distinct rows of a device in the order of the SHA-256 of their question (every column that a
prediction reads).  The choice depends neither on measured times nor on the order of the table, is the same on every
run, and is random in operator and size.  It is not stratified, as that would require a choice of strata.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256

from simulator.errors import InputError, one_line
from simulator.records import dataclass


@dataclass(frozen=True, slots=True)
class SampledShapes:
    """One shape in *divisor*."""

    divisor: int = 1

    @classmethod
    def parse(cls, option: str, text: str) -> SampledShapes:
        """Return the share that *text* states, as in ``1/16``; raises InputError where it states none."""
        match = re.fullmatch(r"\s*1\s*/\s*0*([1-9]\d{0,5})\s*", text, re.ASCII)
        if match is None:
            raise InputError(f"{option}: a share such as 1/16 is needed; got '{one_line(text, 60)}'")
        return cls(int(match[1]))

    def holds(self, shape: tuple[int, ...]) -> bool:
        """Return whether *shape* is in the share: the hash of its comma-separated sizes is divisible by *divisor*."""
        if self.divisor == 1:
            return True
        return int(sha256(",".join(map(str, shape)).encode()).hexdigest(), 16) % self.divisor == 0


HELD_OUT = SampledShapes(16)  # shapes of matrix products and attention that no constant is fitted to


_DIGITS = 16  # of the digest: 64 bits are plenty for tables of 10^5 rows


def digest(asked: Mapping[str, str]) -> str:
    """Return the first digits of the SHA-256 of a row's question; the order of its columns does not matter."""
    text = "\x1e".join(f"{column}\x1f{asked[column].strip()}" for column in sorted(asked) if asked[column].strip())
    return sha256(text.encode()).hexdigest()[:_DIGITS]


def sampled_digests(digests: Iterable[str], count: int) -> frozenset[str]:
    """Return the digests of *count* distinct questions, but of at most half of them."""
    distinct = sorted(set(digests))
    return frozenset(distinct[: min(count, len(distinct) // 2)])
