"""Errors and coverage of groups of rows: by machine, collective or operator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from validate.score.scores import Errors as RowErrors
from validate.score.scores import Scores
from validate.tables.statistics import Errors, percentile, summarise

_SIZE_ORDER = {">=1MiB": "0", "<1MiB": "1"}


@dataclass(frozen=True, slots=True)
class Group:
    """``rows`` rows that share the labels ``by``, of which ``errors.n`` are scored.

    ``baseline`` holds the errors of the baseline over the same scored rows.
    """

    by: dict[str, str]
    rows: int
    errors: Errors
    baseline: Errors

    @property
    def coverage(self) -> float | None:
        """Share of the rows that are scored; None for no rows."""
        return self.errors.n / self.rows if self.rows else None


def whole(rows: Scores) -> Group:
    """Return *rows* as one group."""
    return _group({}, *rows.errors())


def without(rows: Scores, axes: Sequence[str]) -> tuple[list[str], Group]:
    """Return those of *axes* for which some of *rows* have no label, and those rows as one group."""
    missing, found = rows.without(axes)
    return missing, _group({}, *found)


def _group(by: dict[str, str], rows: int, errors: RowErrors) -> Group:
    return Group(by, rows, summarise(errors[0]), summarise(errors[1]))


def median_of(place: str, rows: Scores) -> float | None:
    """Return the median over machines (or devices: *place*) of each one's median absolute error; None for no errors."""
    medians = [group.errors.median_ape for group in group_rows(rows, (place,))]
    ordered = sorted(m for m in medians if m is not None)
    return percentile(ordered, 0.5) if ordered else None


def group_rows(rows: Scores, axes: Sequence[str]) -> list[Group]:
    """Return the groups of *rows* with equal labels along *axes*, sorted.

    Rows that lack one of the labels are in no group.
    """
    found = rows.grouped(axes)
    return [_group(dict(zip(axes, labels, strict=True)), *found[labels]) for labels in sorted(found, key=_order)]


def _order(labels: tuple[str, ...]) -> list[tuple[int, float, str]]:
    """Return a sort key that orders numbers by value, before words."""
    keys = []
    for label in labels:
        try:
            keys.append((0, float(label), label))
        except ValueError:
            keys.append((1, 0.0, _SIZE_ORDER.get(label, label)))
    return [key if math.isfinite(key[1]) else (1, 0.0, key[2]) for key in keys]


def beside_published(rows: Scores) -> list[tuple[str, Errors, Errors]]:
    """Return (name, its errors, ours) for each published predictor, over the scored rows that it also predicts."""
    found = sorted(rows.published.items())
    return [(name, summarise(theirs), summarise(ours)) for name, (theirs, ours) in found]
