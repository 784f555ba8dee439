"""Rows by machine, by collective, by operator: errors of each group, and its coverage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from validate.score.score import ScoredRow
from validate.tables.statistics import Errors, percentile, summarise

__all__ = ["Group", "beside_published", "group_rows", "median_of", "whole"]

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


def whole(rows: Sequence[ScoredRow], by: dict[str, str] | None = None) -> Group:
    """Return *rows* as one group."""
    scored = [row for row in rows if not row.skipped]
    return Group(
        by or {},
        len(rows),
        summarise([row.error for row in scored if row.error is not None]),
        summarise([row.baseline_error for row in scored if row.baseline_error is not None]),
    )


def median_of(place: str, rows: Sequence[ScoredRow]) -> float | None:
    """Return the median, over the machines (devices: *place*), of the median absolute error of the rows of each."""
    medians = [group.errors.median_ape for group in group_rows(rows, (place,))]
    ordered = sorted(m for m in medians if m is not None)
    return percentile(ordered, 0.5) if ordered else None


def group_rows(rows: Sequence[ScoredRow], axes: Sequence[str]) -> list[Group]:
    """Return the groups of *rows* that share their labels along *axes*, sorted.

    A row without one of the labels is in none.
    """
    found: dict[tuple[str, ...], list[ScoredRow]] = {}
    for row in rows:
        if all(axis in row.labels for axis in axes):
            found.setdefault(tuple(row.labels[axis] for axis in axes), []).append(row)
    return [whole(found[labels], dict(zip(axes, labels, strict=True))) for labels in sorted(found, key=_order)]


def _order(labels: tuple[str, ...]) -> list[tuple[int, float, str]]:
    """Numbers by value and before words."""
    keys = []
    for label in labels:
        try:
            keys.append((0, float(label), label))
        except ValueError:
            keys.append((1, 0.0, _SIZE_ORDER.get(label, label)))
    return [key if math.isfinite(key[1]) else (1, 0.0, key[2]) for key in keys]


def beside_published(rows: Sequence[ScoredRow]) -> list[tuple[str, Errors, Errors]]:
    """Return (name, their errors, ours) of each published predictor, over the scored rows that it predicted too."""
    scored = [row for row in rows if not row.skipped]
    names = sorted({name for row in scored for name in row.published_errors})
    found = []
    for name in names:
        both = [row for row in scored if name in row.published_errors and row.error is not None]
        theirs = summarise([row.published_errors[name] for row in both])
        found.append((name, theirs, summarise([row.error for row in both if row.error is not None])))
    return found
