"""Rows far from the median of their class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from validate.compare.rows import ComparedRow
from validate.tables.statistics import percentile

FAR = 3.0
_TO_SIGMA = 1.4826  # standard deviation of a normal distribution over its median absolute deviation
_FEWEST = 5  # smallest class that is searched
_LEAST = 0.005  # least deviation of log(predicted / measured)


@dataclass(frozen=True, slots=True)
class Outlier:
    """A row, and its signed distance from the median of its class in deviations."""

    row: ComparedRow
    deviations: float


def find_outliers(rows: Sequence[ComparedRow]) -> list[Outlier]:
    """Return the rows more than three deviations from their class's median of log(predicted / measured).

    A deviation is the median absolute deviation times 1.4826 (Rousseeuw and Croux, Alternatives to the
    median absolute deviation, 1993), so outliers in up to half of a class do not hide each other; it is at least the
    row's measured interval.  A class is the rows of a table with one operator, network, collective, ... (see
    :func:`class_of`); classes with fewer than five rows are skipped.
    """
    classes: dict[tuple[str, ...], list[ComparedRow]] = {}
    for row in rows:
        if row.counts:
            classes.setdefault(class_of(row), []).append(row)
    found = []
    for members in classes.values():
        if len(members) < _FEWEST:
            continue
        middle = percentile(sorted(row.log_ratio for row in members), 0.5)
        deviation = _TO_SIGMA * percentile(sorted(abs(row.log_ratio - middle) for row in members), 0.5)
        for row in members:
            one = max(deviation, row.interval or 0.0, _LEAST)
            if abs(row.log_ratio - middle) > FAR * one:
                found.append(Outlier(row, (row.log_ratio - middle) / one))
    return sorted(found, key=lambda o: (-abs(o.deviations), o.row.table, o.row.line))


def class_of(row: ComparedRow) -> tuple[str, ...]:
    """Return the class of a row: its table, and its operator, network, collective, bench, kind or mode."""
    for column in ("op", "model", "collective", "bench", "kind", "mode"):
        if column in row.cells:
            return row.table, row.cells[column]
    return (row.table,)


def worst_rows(rows: Sequence[ComparedRow], count: int = 10, of_one_class: int = 3) -> list[ComparedRow]:
    """Return the *count* rows with the largest abs(log(predicted / measured)), the worst first.

    At most *of_one_class* rows of a class are returned, as more of them would add little.
    """
    counted = [row for row in rows if row.counts]
    taken: Counter[tuple[str, ...]] = Counter()
    found = []
    for row in sorted(counted, key=lambda row: (-abs(row.log_ratio), row.table, row.line)):
        taken[class_of(row)] += 1
        if taken[class_of(row)] <= of_one_class:
            found.append(row)
    return found[:count]
