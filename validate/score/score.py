"""Scores a table: predicts each row, then reads what was measured."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import tee

from simulator.errors import Fault, InputError, one_line
from validate.kinds.kind import Cell, Kind
from validate.kinds.row import MeasuredRow
from validate.kinds.steps import configuration
from validate.score.predict import Predict, Predicted
from validate.tables.cells import NotScored, measured_time, number
from validate.tables.csv_text import CsvRecord
from validate.tables.names import RowNames
from validate.tables.table import Table

MOST_DIFFERENT = 100_000
"""Most distinct labels, reasons and configurations of a table; each takes some 100 bytes or more."""

OTHER_REASON = f"another of more than {MOST_DIFFERENT:,} reasons"
"""Stands for the reasons beyond these."""


def score_rows(
    rows: Iterable[MeasuredRow],
    trust: Sequence[str],
    *,
    published: Mapping[str, Mapping[str, float]],
    set_aside: Callable[[MeasuredRow], str],
    predict: Predict | None,
    advance: Callable[[], None] = lambda: None,
) -> Iterator[MeasuredRow]:
    """Yield each of *rows* with its prediction, in order.

    Rows with a trust grade outside *trust* are predicted but do not count (they are context); rows without a grade do.
    *published* holds predictions of others, by ``row_id`` and predictor.  *set_aside* returns a further reason why a
    row does not count, or "".  *predict* predicts the rows; without it, the predictions in the table are used.
    *advance* is called after each row.
    """
    rows, ahead = tee(rows)
    unasked = Predicted()
    asking = (row for row in ahead if row.asked is not None)
    answers = map(_written, asking) if predict is None else predict(row.asks for row in asking)
    for row in rows:
        answer, is_outside = unasked, bool(row.grade) and row.grade not in trust
        if row.asked is not None:
            answer = next(answers)
            row.predicted_s, row.band, row.baseline_s = answer.predicted_s, answer.band, answer.baseline_s
            row.skipped = answer.skipped
        for figure in row.memory:
            figure.predicted_bytes = answer.memory_bytes.get(figure.name)
            reason = row.skipped or answer.no_memory or (_context(row) if is_outside else "")
            figure.skipped = figure.skipped or reason
        if row.predicted_s is not None:
            row.skipped = row.untimed
            row.published = published.get(row.cells.get("row_id", ""), {})
            row.is_context = is_outside and not row.untimed
        if row.is_context:
            row.skipped = _context(row)
        row.skipped = row.skipped or set_aside(row)
        yield row
        advance()
    next(answers, None)  # ends other processes in peace


def _context(row: MeasuredRow) -> str:
    return f"context: trust {one_line(row.grade, 20)}"


def ranked(rows: Iterable[MeasuredRow], table: Table, kind: Kind, names: RowNames) -> Iterator[MeasuredRow]:
    """Yield *rows* of *table*, with the label ``framework_rank`` where their *kind* ranks frameworks.

    Raises InputError where the table has too many different configurations.
    """
    best = _fastest(table, kind, names)
    for row in rows:
        if best and row.labels.get("ranks") == "one":
            with contextlib.suppress(NotScored):
                cell = _cell(table, row.record)
                is_best = kind.measured_s(cell, names) <= best.get(configuration(cell), 0.0)
                row.labels = {**row.labels, "framework_rank": "best" if is_best else "other"}
        yield row


def _cell(table: Table, record: CsvRecord) -> Cell:
    return lambda column: table.cell(record, column)


def _fastest(table: Table, kind: Kind, names: RowNames) -> dict[tuple[str, ...], float]:
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


def _written(row: MeasuredRow) -> Predicted:
    """Return the prediction that the table holds for a row."""
    text = row.cells.get("predicted_s", "")
    if not text:
        return Predicted(skipped=row.cells.get("skipped") or "no prediction")
    try:
        return Predicted(measured_time(number("predicted_s", text)), no_memory="no prediction")
    except NotScored as reason:
        return Predicted(skipped=str(reason))
