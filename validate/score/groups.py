"""Rows by machine, by collective, by operator: errors of each group, and its coverage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from validate.score.scores import Errors as RowErrors
from validate.score.scores import Scores
from validate.tables.statistics import Errors, percentile, summarise

__all__ = ["Group", "beside_published", "group_rows", "median_of", "whole", "without"]

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
        """Scored over all."""
        return self.errors.n / self.rows if self.rows else None


def whole(rows: Scores) -> Group:
    """Return *rows* as one group."""
    return _group({}, *rows.errors())


def without(rows: Scores, axes: Sequence[str]) -> tuple[list[str], Group]:
    """Return which of *axes* some of *rows* have no label of, and those rows as one group."""
    missing, found = rows.without(axes)
    return missing, _group({}, *found)


def _group(by: dict[str, str], rows: int, errors: RowErrors) -> Group:
    return Group(by, rows, summarise(errors[0]), summarise(errors[1]))


def median_of(place: str, rows: Scores) -> float | None:
    """Return the median, over the machines (devices: *place*), of the median absolute error of the rows of each."""
    medians = [group.errors.median_ape for group in group_rows(rows, (place,))]
    ordered = sorted(m for m in medians if m is not None)
    return percentile(ordered, 0.5) if ordered else None


def group_rows(rows: Scores, axes: Sequence[str]) -> list[Group]:
    """Return the groups of *rows* that share their labels along *axes*, sorted.

    A row without one of the labels is in none.
    """
    found = rows.grouped(axes)
    return [_group(dict(zip(axes, labels, strict=True)), *found[labels]) for labels in sorted(found, key=_order)]


def _order(labels: tuple[str, ...]) -> list[tuple[int, float, str]]:
    """Numbers by value and before words."""
    keys = []
    for label in labels:
        try:
            keys.append((0, float(label), label))
        except ValueError:
            keys.append((1, 0.0, _SIZE_ORDER.get(label, label)))
    return [key if math.isfinite(key[1]) else (1, 0.0, key[2]) for key in keys]


def beside_published(rows: Scores) -> list[tuple[str, Errors, Errors]]:
    """Return (name, their errors, ours) of each published predictor, over the scored rows that it predicted too."""
    found = sorted(rows.published.items())
    return [(name, summarise(theirs), summarise(ours)) for name, (theirs, ours) in found]
