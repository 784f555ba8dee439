"""Score a table: predict each row, then look at what was measured."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from simulator.bands.band import Band
from simulator.errors import one_line
from validate.kinds.kind import Asked, Cell, Kind
from validate.kinds.steps import configuration
from validate.tables.cells import NotScored, measured_time
from validate.tables.csv_text import Record
from validate.tables.names import Names
from validate.tables.statistics import relative_error
from validate.tables.table import Table

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
    asked: Asked | None = None
    predicted_s: float | None = None
    band: Band | None = None
    baseline_s: float | None = None
    error: float | None = None
    baseline_error: float | None = None
    published_errors: Mapping[str, float] = field(default_factory=dict)
    skipped: str = ""
    is_context: bool = False


def score_table(
    table: Table,
    kind: Kind,
    names: Names,
    trust: Sequence[str],
    *,
    published: Mapping[str, Mapping[str, float]] | None = None,
    set_aside: Mapping[int, str] | None = None,
    advance: Callable[[], None] = lambda: None,
) -> list[ScoredRow]:
    """Return every row of *table* with its prediction and error, in order.

    Rows of other grades than *trust* are predicted and do not count (they are context); rows without a grade count.
    *published* is what others predict, by ``row_id`` and predictor; *set_aside* says by line which rows do not count
    besides, and why.  *advance* is called after each row.
    """
    best = _fastest(table, kind, names)
    rows = []
    for record in table.rows:
        row = _labelled(table, record, kind, names, best)
        _predict(table, row, kind, names)
        _judge(table, row, kind, names, trust, published or {})
        if not row.skipped:
            row.skipped = (set_aside or {}).get(record.line, "")
        rows.append(row)
        advance()
    return rows


def _cell(table: Table, record: Record) -> Cell:
    return lambda column: table.cell(record, column)


def _fastest(table: Table, kind: Kind, names: Names) -> dict[tuple[str, ...], float]:
    """Return the least time of each configuration, whatever the framework, where the kind ranks frameworks."""
    best: dict[tuple[str, ...], float] = {}
    for record in table.rows if "framework_rank" in kind.labels else ():
        cell = _cell(table, record)
        with contextlib.suppress(NotScored):
            time_s = kind.measured_s(cell, names)
            key = configuration(cell)
            best[key] = min(time_s, best.get(key, time_s))
    return best


def _labelled(
    table: Table, record: Record, kind: Kind, names: Names, best: Mapping[tuple[str, ...], float]
) -> ScoredRow:
    cell = _cell(table, record)
    labels = {name: table.written(record, name) for name in table.position}
    own = dict(kind.labelled(cell, names, names.session))
    if best and own.get("ranks") == "one":
        with contextlib.suppress(NotScored):
            is_best = kind.measured_s(cell, names) <= best.get(configuration(cell), 0.0)
            own["framework_rank"] = "best" if is_best else "other"
    labels.update(own)
    return ScoredRow(record, {name: text for name, text in labels.items() if text})


def _predict(table: Table, row: ScoredRow, kind: Kind, names: Names) -> None:
    """Fill in what is predicted; sees the columns that the kind says are asked, and no other."""
    asked = {column: table.cell(row.record, column) for column in kind.asked}
    n_fields, n_columns = len(row.record.fields), len(table.header)
    try:
        if n_fields != n_columns:
            raise NotScored(f"{n_fields} fields where the header has {n_columns}")
        row.asked = kind.read(asked.__getitem__, names)
        row.predicted_s = row.asked.time_s(names.session)
        row.band = row.asked.band(names.session, row.predicted_s)
    except NotScored as reason:
        row.skipped = str(reason)
        return
    with contextlib.suppress(NotScored):
        row.baseline_s = row.asked.bound_s(names.session)


def _judge(
    table: Table,
    row: ScoredRow,
    kind: Kind,
    names: Names,
    trust: Sequence[str],
    published: Mapping[str, Mapping[str, float]],
) -> None:
    """Set the prediction beside what was measured."""
    if row.predicted_s is None:
        return
    try:
        measured_s = measured_time(kind.measured_s(_cell(table, row.record), names))
    except NotScored as reason:
        row.skipped = str(reason)
        return
    row.error = relative_error(row.predicted_s, measured_s)
    if row.baseline_s is not None:
        row.baseline_error = relative_error(row.baseline_s, measured_s)
    others = published.get(table.cell(row.record, "row_id"), {})
    row.published_errors = {name: relative_error(value, measured_s) for name, value in others.items()}
    grade = table.cell(row.record, "trust").upper()
    if grade and grade not in trust:
        row.is_context = True
        row.skipped = f"context: trust {one_line(grade, 20)}"
