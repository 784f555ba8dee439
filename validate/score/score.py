"""Score a table: predict each row, then look at what was measured."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from validate.score.csv_text import Record
from validate.score.predict import Predictor
from validate.score.query import COLUMNS_ASKED, NotScored, Query, collective_name, number, read_query
from validate.score.statistics import relative_error
from validate.score.table import Table

__all__ = ["COLUMNS_READ", "LARGE_BYTES", "ScoredRow", "needed_columns", "score_table"]

COLUMNS_READ = (*COLUMNS_ASKED, "time_s", "trust")
LARGE_BYTES = 1 << 20
_MEASURABLE_S = (1e-9, 1e9)


@dataclass(slots=True)
class ScoredRow:
    """A row with its prediction.

    ``skipped`` is empty where the row counts in the statistics, otherwise why it does not.
    ``labels`` are what rows can be grouped by: machine, collective, decade, size.
    """

    record: Record
    labels: dict[str, str]
    query: Query | None = None
    predicted_s: float | None = None
    baseline_s: float | None = None
    error: float | None = None
    baseline_error: float | None = None
    skipped: str = ""
    is_context: bool = False


def needed_columns(*, machine: bool) -> tuple[str, ...]:
    """Return the columns that a table must have; *machine* says whether rows must name theirs."""
    return (*(("machine",) if machine else ()), "n_gpus", "collective", "bytes", "time_s")


def score_table(
    table: Table, predictor: Predictor, trust: Sequence[str], advance: Callable[[], None] = lambda: None
) -> list[ScoredRow]:
    """Return every row of *table* with its prediction and error, in order.

    Rows whose grade of trust is not in *trust* are predicted and do not count (they are
    context); rows without a grade count.  *advance* is called after each row.
    """
    rows = []
    for record in table.rows:
        row = _labelled(table, record)
        if predictor.fitted_to and row.labels.get("machine"):
            row.labels["fit"] = "fitted" if row.labels["machine"] in predictor.fitted_to else "not fitted"
        _predict(table, row, predictor)
        _judge(table, row, trust)
        rows.append(row)
        advance()
    return rows


def _labelled(table: Table, record: Record) -> ScoredRow:
    labels = {name: table.cell(record, name) for name in table.position}
    labels["machine"] = table.cell(record, "machine")
    labels["collective"] = collective_name(table.cell(record, "collective"))
    labels.update(_size_labels(table.cell(record, "bytes")))
    return ScoredRow(record, {name: text for name, text in labels.items() if text})


def _size_labels(text: str) -> dict[str, str]:
    try:
        size_bytes = number("bytes", text)
    except NotScored:
        return {"decade": "", "size": ""}
    return {
        "decade": f"1e{Decimal(repr(size_bytes)).adjusted()}",
        "size": ">=1MiB" if size_bytes >= LARGE_BYTES else "<1MiB",
    }


def _predict(table: Table, row: ScoredRow, predictor: Predictor) -> None:
    """Fill in what is predicted; sees the columns of ``COLUMNS_ASKED`` alone."""
    asked = {column: table.cell(row.record, column) for column in COLUMNS_ASKED}
    n_fields, n_columns = len(row.record.fields), len(table.header)
    try:
        if n_fields != n_columns:
            raise NotScored(f"{n_fields} fields where the header has {n_columns}")
        row.query = read_query(asked.__getitem__)
        row.predicted_s = predictor.predict_s(row.query)
    except NotScored as reason:
        row.skipped = str(reason)
        return
    with contextlib.suppress(NotScored):
        row.baseline_s = predictor.baseline_s(row.query)


def _judge(table: Table, row: ScoredRow, trust: Sequence[str]) -> None:
    """Set the prediction beside what was measured."""
    if row.predicted_s is None:
        return
    try:
        measured_s = number("time_s", table.cell(row.record, "time_s"))
        if not _MEASURABLE_S[0] <= measured_s <= _MEASURABLE_S[1]:
            raise NotScored(f"time_s outside {_MEASURABLE_S[0]:g} to {_MEASURABLE_S[1]:g} s")
    except NotScored as reason:
        row.skipped = str(reason)
        return
    row.error = relative_error(row.predicted_s, measured_s)
    if row.baseline_s is not None:
        row.baseline_error = relative_error(row.baseline_s, measured_s)
    grade = table.cell(row.record, "trust").upper()
    if grade and grade not in trust:
        row.is_context = True
        row.skipped = f"context: trust {grade[:20]}"
