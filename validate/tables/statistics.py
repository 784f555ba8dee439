"""Summary statistics of relative errors, and how reports write them, line numbers, and the lines left out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

from simulator.cli.table import table_of
from simulator.console.style import Style
from simulator.records import dataclass


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of ``n`` rows as fractions: 0.1 is 10 %.

    ``median_ape``, ``p90_ape`` and ``mean_ape`` are statistics of the absolute relative error; ``bias`` is the mean of
    the signed one, positive where predictions are too slow.  All are None where n is 0.
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
    """Return the percentile of the ascending values *ordered* at *share* (0 to 1), interpolated linearly.

    Of n values, it is at index (n - 1) * share (definition 7 of Hyndman and Fan, Sample quantiles in statistical
    packages, 1996).
    """
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
    spans: list[list[int]] = []
    for line in lines:
        if spans and line == spans[-1][1] + 1:
            spans[-1][1] = line
        elif limit is not None and len(spans) > limit:
            break
        else:
            spans.append([line, line])
    shown = [f"{a}-{b}" if b > a else str(a) for a, b in spans[:limit]]
    return ", ".join(shown) + (", ..." if limit is not None and len(spans) > limit else "")


def by_frequency(lines: Mapping[str, L]) -> dict[str, L]:
    """Return lines by reason, the most frequent reason first."""
    return dict(sorted(lines.items(), key=lambda item: (-len(item[1]), item[0])))


def percent_text(value: float | None, sign: str = "") -> str:
    """Return the fraction *value* in percent, with a *sign* "+" always with its sign; ``-`` for None."""
    if value is None:
        return "-"
    return f"{value * 100:{sign}.1f} %" if abs(value) < 1e4 else f"{value * 100:{sign}.1e} %"


def skipped_table(
    title: str, lines: Mapping[str, Sequence[int]], style: Style, medians: Mapping[str, float | None] | None = None
) -> list[str]:
    """Return a table of the rows left out, their number and lines by reason; empty where there are none.

    *medians*: the median absolute error that those rows would have which are predicted, by reason.
    """
    if not lines:
        return []
    of = medians or {}
    rows = [[title, "rows", *(["would be"] if of else []), "lines"]]
    for reason, found in lines.items():
        rows.append([reason, str(len(found)), *([percent_text(of.get(reason))] if of else []), line_ranges(found)])
    return table_of(rows, [False, True, *([True] if of else []), False], style)
