"""Errors by class: their size with its uncertainty, bias, the spread of measurements, and rows far from the rest."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from simulator.records import dataclass
from validate.compare.folder import COLUMNS
from validate.kinds import KINDS
from validate.kinds.row import MeasuredRow
from validate.machine.measure.timing import FEWEST, median_interval
from validate.tables.statistics import percentile, summarise

_PLACES = frozenset(("device", "machine", "dataset", "fit"))  # the same for all rows of a folder
_FIRST = ("ops.csv", "training.csv", "collectives.csv")  # of most interest, shown first
_MOST_LABELS = 40  # an axis with more values does not form classes


@dataclass(frozen=True, slots=True)
class ClassErrors:
    """Errors of the rows of a table that share the labels ``by``, as fractions; None if no row is scored.

    ``median``, ``mean`` and ``p90`` are of absolute errors; ``median_low`` to ``median_high`` is the 95 % confidence
    interval of the median (None below six rows); ``bias`` is the median of predicted / measured, minus 1; ``spread``
    is the median half-width of the measurements' 95 % intervals; ``in_band`` is the share of rows measured within the
    band of their prediction, among rows with a band.
    """

    table: str
    by: dict[str, str]
    rows: int
    scored: int
    median: float | None = None
    median_low: float | None = None
    median_high: float | None = None
    mean: float | None = None
    p90: float | None = None
    bias: float | None = None
    spread: float | None = None
    in_band: float | None = None

    @property
    def label(self) -> str:
        """The class in words; numbers are preceded by their column's name."""
        words = [text if text[:1].isalpha() else f"{name} {text}" for name, text in self.by.items()]
        return " ".join(words) or self.table


def class_errors(rows: Sequence[MeasuredRow], table: str = "", by: dict[str, str] | None = None) -> ClassErrors:
    """Return the errors of *rows* as one class."""
    counted = [row for row in rows if row.counts]
    known = sorted(row.interval for row in rows if row.interval is not None)
    spread = percentile(known, 0.5) if known else None
    if not counted:
        return ClassErrors(table, by or {}, len(rows), 0, spread=spread)
    errors = [row.error for row in counted if row.error is not None]
    summary, interval = summarise(errors), median_interval([abs(error) for error in errors])
    low, high = (interval.low, interval.high) if interval.samples >= FEWEST else (None, None)
    held = [row.in_band for row in counted if row.in_band is not None]
    bias = math.expm1(percentile(sorted(row.log_ratio for row in counted), 0.5))
    figures = (summary.median_ape, low, high, summary.mean_ape, summary.p90_ape, bias, spread)
    in_band = sum(held) / len(held) if held else None
    return ClassErrors(table, by or {}, len(rows), len(counted), *figures, in_band)


def classes_of(rows: Sequence[MeasuredRow]) -> list[ClassErrors]:
    """Return for each table of *rows* the class of all its rows, then its classes along each axis.

    An axis is a tuple of columns that splits the rows into several classes of several rows.
    """
    found = []
    tables = sorted({row.table for row in rows})
    for table in sorted(tables, key=lambda table: _FIRST.index(table) if table in _FIRST else len(_FIRST)):
        mine = [row for row in rows if row.table == table]
        found.append(class_errors(mine, table))
        kinds = {row.kind for row in mine}
        kind = next((kind for kind in KINDS if kinds == {kind.name}), None)
        shown: tuple[tuple[str, ...], ...] = (("op",), ("bench",), ("kind",), ("mode",))
        if kind is not None:
            shown = COLUMNS["axes"].get(kind.name) or tuple(
                axes for axes in kind.shown if not _PLACES.intersection(axes)
            )
        for axes in shown if any(row.counts for row in mine) else ():
            counts = [len({row.labels.get(axis, "") for row in mine}) for axis in axes]
            if not all(1 < count <= min(_MOST_LABELS, max(2, len(mine) // 2)) for count in counts):
                continue
            groups: dict[tuple[str, ...], list[MeasuredRow]] = {}
            for row in mine:
                if all(axis in row.labels for axis in axes):
                    groups.setdefault(tuple(row.labels[axis] for axis in axes), []).append(row)
            found += [
                class_errors(groups[labels], table, dict(zip(axes, labels, strict=True))) for labels in sorted(groups)
            ]
    return found


FAR = 3.0
_TO_SIGMA = 1.4826  # standard deviation of a normal distribution over its median absolute deviation
_FEWEST = 5  # smallest class that is searched
_LEAST = 0.005  # least deviation of log(predicted / measured)


@dataclass(frozen=True, slots=True)
class Outlier:
    """A row, and its signed distance from the median of its class in deviations."""

    row: MeasuredRow
    deviations: float


def find_outliers(rows: Sequence[MeasuredRow]) -> list[Outlier]:
    """Return the rows more than three deviations from their class's median of log(predicted / measured).

    A deviation is the median absolute deviation times 1.4826 (Rousseeuw and Croux, Alternatives to the median absolute
    deviation, 1993), so outliers in up to half of a class do not hide each other; it is at least the row's measured
    interval.  Classes (:func:`row_class`) with fewer than five rows are skipped.
    """
    classes: dict[tuple[str, ...], list[MeasuredRow]] = {}
    for row in rows:
        if row.counts:
            classes.setdefault(row_class(row), []).append(row)
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


def row_class(row: MeasuredRow) -> tuple[str, ...]:
    """Return the class of a row: its table, and its operator, network, collective, bench, kind or mode."""
    for column in ("op", "model", "collective", "bench", "kind", "mode"):
        if column in row.labels:
            return row.table, row.labels[column]
    return (row.table,)


def worst_rows(rows: Sequence[MeasuredRow], count: int = 10, of_one_class: int = 3) -> list[MeasuredRow]:
    """Return the *count* rows with the largest abs(log(predicted / measured)), the worst first.

    At most *of_one_class* rows of a class are returned, as more of them would add little.
    """
    counted = (row for row in rows if row.counts)
    taken: Counter[tuple[str, ...]] = Counter()
    found = []
    for row in sorted(counted, key=lambda row: (-abs(row.log_ratio), row.table, row.line)):
        taken[row_class(row)] += 1
        found += [row] if taken[row_class(row)] <= of_one_class else []
    return found[:count]
