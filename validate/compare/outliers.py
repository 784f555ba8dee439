"""Rows that are far from the others of their class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from validate.compare.rows import ComparedRow
from validate.tables.statistics import percentile

__all__ = ["Outlier", "find_outliers", "worst_rows"]

FAR = 3.0
_TO_SIGMA = 1.4826  # a median absolute deviation in standard deviations of a normal distribution
_FEWEST = 5  # rows of which a class has a middle
_LEAST = 0.005  # of log(predicted / measured): nearer than this nothing is far


@dataclass(frozen=True, slots=True)
class Outlier:
    """A row, and how many deviations of its class it is from the middle of it, signed."""

    row: ComparedRow
    deviations: float


def find_outliers(rows: Sequence[ComparedRow]) -> list[Outlier]:
    """Return rows more than three deviations from their class's median of log(predicted / measured).

    A deviation is the median absolute deviation times 1.4826 (Rousseeuw and Croux, Alternatives to the
    median absolute deviation, 1993), so that half of a class may be off without hiding the others; never less
    than the spread of the measurement itself.  A class is a table's rows of one operator or network, or of
    what else the table is of; it needs five rows.
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
    """Return what a row is compared with: its table and operator, network, bench or kind."""
    for column in ("op", "model", "collective", "bench", "kind", "mode"):
        if column in row.cells:
            return row.table, row.cells[column]
    return (row.table,)


def worst_rows(rows: Sequence[ComparedRow], count: int = 10, of_one_class: int = 3) -> list[ComparedRow]:
    """Return the *count* rows of the largest abs(log(predicted / measured)), the worst first.

    At most *of_one_class* of one operator, network, bench or kind: more of them say the same again.
    """
    counted = [row for row in rows if row.counts]
    taken: Counter[tuple[str, ...]] = Counter()
    found = []
    for row in sorted(counted, key=lambda row: (-abs(row.log_ratio), row.table, row.line)):
        taken[class_of(row)] += 1
        if taken[class_of(row)] <= of_one_class:
            found.append(row)
    return found[:count]
