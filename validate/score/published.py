"""What predictors of others make of the same rows."""

from __future__ import annotations

from collections.abc import Sequence

from validate.score.score import ScoredRow
from validate.score.statistics import Errors, summarise

__all__ = ["beside_published"]


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
