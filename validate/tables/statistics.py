"""Summary statistics of relative errors, and how reports write them, line numbers, and the lines left out.

Rows are chosen by hash, the SHA-256 of their question: a share of shapes, the same on all devices and in all
frameworks, and the first distinct rows, which calibrate a device; neither times nor the table's order matter.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from typing import TypeVar

from simulator.cli.table import table_of
from simulator.console import Style
from simulator.errors import InputError, one_line
from simulator.records import dataclass
from simulator.results import runs_of


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of ``n`` rows as fractions: 0.1 is 10 %; None for no rows.

    ``median_ape``, ``p90_ape`` and ``mean_ape`` are of absolute relative errors; ``bias`` is the mean of signed ones.
    """

    n: int
    median_ape: float | None
    p90_ape: float | None
    mean_ape: float | None
    bias: float | None


def relative_error(predicted_s: float, measured_s: float) -> float:
    """Return (predicted - measured) / measured."""
    return (predicted_s - measured_s) / measured_s


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the percentile of *ordered* at *share*, at index (n - 1) * share (Hyndman and Fan 1996, definition 7)."""
    place = (len(ordered) - 1) * share
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summarise(errors: Sequence[float]) -> Errors:
    """Return the statistics of signed relative *errors*."""
    n, absolute = len(errors), sorted(map(abs, errors))
    if n == 0:
        return Errors(0, None, None, None, None)
    half, p90 = percentile(absolute, 0.5), percentile(absolute, 0.9)
    return Errors(n, half, p90, math.fsum(absolute) / n, math.fsum(errors) / n)


def weighted_quantile(ordered: Sequence[tuple[float, float]], share: float) -> float:
    """Return the least of ascending (value, weight) pairs at which *share* of the weight is reached; NaN for none."""
    whole = math.fsum(weight for _, weight in ordered)
    passed = 0.0
    for value, weight in ordered:
        passed += weight
        if passed >= share * whole - 1e-12:
            return value
    return ordered[-1][0] if ordered else math.nan


L = TypeVar("L", bound=Sequence[int])


def line_ranges(lines: Sequence[int], limit: int | None = 6) -> str:
    """Return ascending line numbers as ``3-7, 12``; only the first *limit* ranges (None: all)."""
    shown = list(islice(runs_of(lines), None if limit is None else limit + 1))
    return ", ".join(shown[:limit]) + (", ..." if limit is not None and len(shown) > limit else "")


def by_frequency(lines: Mapping[str, L]) -> dict[str, L]:
    """Return lines by reason, the most frequent reason first."""
    return dict(sorted(lines.items(), key=lambda item: (-len(item[1]), item[0])))


def percent_text(value: float | None, sign: str = "") -> str:
    """Return the fraction *value* in percent, with a *sign* "+" always with its sign; ``-`` for None."""
    return "-" if value is None else f"{value * 100:{sign}.1f} %" if abs(value) < 1e4 else f"{value * 100:{sign}.1e} %"


def skipped_table(
    title: str, lines: Mapping[str, Sequence[int]], style: Style, medians: Mapping[str, float | None] | None = None
) -> list[str]:
    """Return a table of the rows left out by reason, with lines, and the *medians* of errors that they would have."""
    if not lines:
        return []
    of = medians or {}
    rows = [[title, "rows", *(["would be"] if of else []), "lines"]]
    for reason, found in lines.items():
        rows.append([reason, str(len(found)), *([percent_text(of.get(reason))] if of else []), line_ranges(found)])
    return table_of(rows, [False, True, *([True] if of else []), False], style)


HELD_OUT = 16  # of so many shapes of matrix products and attention one, that no constant is fitted to


def one_in(option: str, text: str) -> int:
    """Return of how many shapes the share that *text* states, as in ``1/16``, is one; raises InputError for none."""
    match = re.fullmatch(r"\s*1\s*/\s*0*([1-9]\d{0,5})\s*", text, re.ASCII)
    if match is None:
        raise InputError(f"{option}: a share such as 1/16 is needed; got '{one_line(text, 60)}'")
    return int(match[1])


def is_sampled(shape: tuple[int, ...], share: int) -> bool:
    """Return whether *shape* is in one *share*: the hash of its comma-separated sizes is divisible by that."""
    return share == 1 or int(sha256(",".join(map(str, shape)).encode()).hexdigest(), 16) % share == 0


_DIGITS = 16  # of the digest: 64 bits are plenty for tables of 10^5 rows


def digest(asked: Mapping[str, str]) -> str:
    """Return the first digits of the SHA-256 of a row's question; the order of its columns does not matter."""
    text = "\x1e".join(f"{column}\x1f{asked[column].strip()}" for column in sorted(asked) if asked[column].strip())
    return sha256(text.encode()).hexdigest()[:_DIGITS]


def sampled_digests(digests: Iterable[str], count: int) -> frozenset[str]:
    """Return the digests of *count* distinct questions, but of at most half of them."""
    distinct = sorted(set(digests))
    return frozenset(distinct[: min(count, len(distinct) // 2)])
