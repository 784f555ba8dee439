"""Measured rows with their predictions, from any kind of table."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from simulator.errors import one_line
from simulator.records import replace
from validate.compare.folder import Folder, key_of, row_name
from validate.kinds.kind import Kind
from validate.kinds.row import MeasuredRow
from validate.score.scoring import Scoring
from validate.tables.cells import figure
from validate.tables.conventions import filled_columns
from validate.tables.table import Table

MEASURED_ONLY = "measured only: no scorer predicts this table"


def table_kind(table: Table, kinds: Sequence[Kind]) -> Kind | None:
    """Return the kind whose needed columns *table* has, of several the one that needs most; None if there is none."""
    fitting = [kind for kind in kinds if all(column in table.position for column in kind.needed)]
    return max(fitting, key=lambda kind: len(kind.needed)) if fitting else None


def compare_folder(folder: Folder, scoring: Scoring, trust: Collection[str] = ("A", "B")) -> list[MeasuredRow]:
    """Return every row of *folder* with its prediction, in the order of tables and lines."""
    rows: list[MeasuredRow] = []
    for name, table in folder.tables.items():
        kind = table_kind(table, scoring.kinds)
        rows += _unpredicted(name, table) if kind is None else _predicted(name, table, kind, scoring, trust)
    return rows


def _unpredicted(name: str, table: Table) -> Iterator[MeasuredRow]:
    for record in table.rows:
        cells = {column: text for column in table.position if (text := table.written(record, column))}
        row = MeasuredRow(None, math.nan, cells, record=record, labels=cells, skipped=MEASURED_ONLY)
        yield _of_folder(name, table, row)


def _predicted(name: str, table: Table, kind: Kind, scoring: Scoring, trust: Collection[str]) -> Iterator[MeasuredRow]:
    known = replace(table, kind=kind.name, conventions=frozenset(filled_columns(kind.name)))
    return (_of_folder(name, table, row) for row in scoring.score(known, kind, tuple(trust)))


def _of_folder(name: str, table: Table, row: MeasuredRow) -> MeasuredRow:
    """Return *row* with what it is called in its folder."""
    row.table, row.name, row.key = name, row_name(table, row.record), key_of(table, row.record)
    interval = figure(table.cell(row.record, "interval"))
    row.interval = interval if interval is not None and interval >= 0 else None
    row.skipped = one_line(row.skipped, 200)
    return row
