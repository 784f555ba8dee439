"""Score a table: predict each row, then look at what was measured."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from simulator.errors import one_line
from validate.score.csv_text import Record
from validate.score.kind import Scorer
from validate.score.query import NotScored, measured_time
from validate.score.statistics import relative_error
from validate.score.table import Table

__all__ = ["ScoredRow", "score_table"]


@dataclass(slots=True)
class ScoredRow:
    """A row with its prediction.

    ``skipped`` is empty where the row counts in the statistics, otherwise why it does not.
    ``labels`` are what rows can be grouped by: the columns, and what the kind of table adds.
    ``published_errors`` are those of predictors of others.
    """

    record: Record
    labels: dict[str, str]
    query: Any = None
    predicted_s: float | None = None
    baseline_s: float | None = None
    error: float | None = None
    baseline_error: float | None = None
    published_errors: Mapping[str, float] = field(default_factory=dict)
    skipped: str = ""
    is_context: bool = False


def score_table(
    table: Table, scorer: Scorer, trust: Sequence[str], advance: Callable[[], None] = lambda: None
) -> list[ScoredRow]:
    """Return every row of *table* with its prediction and error, in order.

    Rows whose grade of trust is not in *trust* are predicted and do not count (they are
    context); rows without a grade count.  *advance* is called after each row.
    """
    set_aside = scorer.prepare(table, trust)
    rows = []
    for record in table.rows:
        row = _labelled(table, record, scorer)
        _predict(table, row, scorer)
        _judge(table, row, scorer, trust)
        if not row.skipped:
            row.skipped = set_aside.get(record.line, "")
        rows.append(row)
        advance()
    return rows


def _labelled(table: Table, record: Record, scorer: Scorer) -> ScoredRow:
    labels = {name: table.cell(record, name) for name in table.position}
    labels.update(scorer.labels(lambda column: table.cell(record, column)))
    return ScoredRow(record, {name: text for name, text in labels.items() if text})


def _predict(table: Table, row: ScoredRow, scorer: Scorer) -> None:
    """Fill in what is predicted; sees the columns that the kind says are asked, and no other."""
    asked = {column: table.cell(row.record, column) for column in scorer.kind.asked}
    n_fields, n_columns = len(row.record.fields), len(table.header)
    try:
        if n_fields != n_columns:
            raise NotScored(f"{n_fields} fields where the header has {n_columns}")
        row.query = scorer.read(asked.__getitem__)
        row.predicted_s = scorer.predict_s(row.query)
    except NotScored as reason:
        row.skipped = str(reason)
        return
    with contextlib.suppress(NotScored):
        row.baseline_s = scorer.baseline_s(row.query)


def _judge(table: Table, row: ScoredRow, scorer: Scorer, trust: Sequence[str]) -> None:
    """Set the prediction beside what was measured."""
    if row.predicted_s is None:
        return
    try:
        measured_s = measured_time(scorer.measured_s(lambda column: table.cell(row.record, column)))
    except NotScored as reason:
        row.skipped = str(reason)
        return
    row.error = relative_error(row.predicted_s, measured_s)
    if row.baseline_s is not None:
        row.baseline_error = relative_error(row.baseline_s, measured_s)
    published_s = scorer.published_s(lambda column: table.cell(row.record, column))
    row.published_errors = {name: relative_error(value, measured_s) for name, value in published_s.items()}
    grade = table.cell(row.record, "trust").upper()
    if grade and grade not in trust:
        row.is_context = True
        row.skipped = f"context: trust {one_line(grade, 20)}"
