"""Scores a table: predicts each row, then reads what was measured."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import filterfalse

from simulator.bands.composition import Band
from simulator.errors import Fault, InputError, one_line
from validate.kinds.kind import Asked, Cell, Kind
from validate.kinds.row import whole_row
from validate.kinds.steps import configuration
from validate.score.predict import Cells, Predict, Predicted
from validate.tables.cells import NotScored, measured_time, number
from validate.tables.csv_text import Record
from validate.tables.names import Names
from validate.tables.statistics import relative_error
from validate.tables.table import Table

MOST_DIFFERENT = 100_000
"""Most distinct labels, reasons and configurations of a table; each takes some 100 bytes or more."""


@dataclass(slots=True)
class ScoredRow:
    """A row with its prediction.

    ``skipped`` is empty where the row counts in the statistics, otherwise the reason why not.  ``labels`` are what rows
    can be grouped by: the columns, and labels that the kind of table adds.  ``published_errors`` are those of other
    predictors.
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
    set_aside: Callable[[Record], str] = lambda _: "",
    predict: Predict | None = None,
    advance: Callable[[], None] = lambda: None,
) -> Iterator[ScoredRow]:
    """Yield every row of *table* with its prediction and error, in order.

    Rows with a trust grade outside *trust* are predicted but do not count (they are context); rows without a grade do.
    *published* holds predictions of others, by ``row_id`` and predictor.  *set_aside* returns a further reason why a
    row does not count, or "".  *predict* predicts the rows; without it, the predictions in the table are used.
    *advance* is called after each row.

    Raises InputError where the table has too many different configurations.
    """
    best = _fastest(table, kind, names)

    def asked(record: Record) -> Cells:
        return tuple(table.cell(record, column) for column in kind.asked)

    def lacking(record: Record) -> str:
        return whole_row(len(record.fields), len(table.header))

    answers: Iterator[Predicted]
    if predict is None:
        answers = (_written(table, record, asked(record), kind, names) for record in filterfalse(lacking, table.rows))
    else:
        answers = predict(asked(record) for record in filterfalse(lacking, table.rows))
    for record in table.rows:
        row = _labelled(table, record, kind, names, best)
        row.skipped = lacking(record)
        if not row.skipped:
            answer = next(answers)
            row.asked, row.predicted_s, row.band = answer.asked, answer.predicted_s, answer.band
            row.baseline_s, row.skipped = answer.baseline_s, answer.skipped
        _judge(table, row, kind, names, trust, published or {})
        if not row.skipped:
            row.skipped = set_aside(record)
        yield row
        advance()
    next(answers, None)  # ends other processes in peace


def _cell(table: Table, record: Record) -> Cell:
    return lambda column: table.cell(record, column)


def _fastest(table: Table, kind: Kind, names: Names) -> dict[tuple[str, ...], float]:
    """Return the least time of each configuration over all frameworks; empty where the kind does not rank them."""
    best: dict[tuple[str, ...], float] = {}
    for record in table.rows if "framework_rank" in kind.labels else ():
        cell = _cell(table, record)
        with contextlib.suppress(NotScored):
            time_s = kind.measured_s(cell, names)
            key = configuration(cell)
            best[key] = min(time_s, best.get(key, time_s))
            if len(best) > MOST_DIFFERENT:
                message = f"has more than {MOST_DIFFERENT:,} different configurations; score it in parts"
                raise InputError(Fault(message, table.file))
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


def _written(table: Table, record: Record, cells: Sequence[str], kind: Kind, names: Names) -> Predicted:
    """Return a row's question, with the prediction that the table holds."""
    try:
        asked = kind.question(dict(zip(kind.asked, cells, strict=True)).__getitem__, names)
        text = table.cell(record, "predicted_s")
        if not text:
            return Predicted(asked, skipped=table.cell(record, "skipped") or "no prediction")
        return Predicted(asked, measured_time(number("predicted_s", text)))
    except NotScored as reason:
        return Predicted(skipped=str(reason))


def _judge(
    table: Table,
    row: ScoredRow,
    kind: Kind,
    names: Names,
    trust: Sequence[str],
    published: Mapping[str, Mapping[str, float]],
) -> None:
    """Set the errors of *row* against the measured time."""
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
