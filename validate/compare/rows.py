"""Measured rows with their predictions, from any kind of table."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from simulator.errors import one_line
from simulator.records import dataclass, fields, replace
from validate.compare.folder import Folder, key_of, row_name
from validate.kinds.kind import Kind
from validate.kinds.row import MeasuredRow
from validate.score.scoring import Scoring
from validate.tables.cells import figure
from validate.tables.conventions import filled_columns
from validate.tables.table import Table

MEASURED_ONLY = "measured only: no scorer predicts this table"


@dataclass(slots=True)
class ComparedRow(MeasuredRow):
    """A row of a folder; ``kind`` is empty if nothing predicts its table, and ``cells`` are its labels."""

    table: str = ""  # the file in the folder
    name: str = ""  # what it asks in a few words
    key: tuple[tuple[str, str], ...] = ()  # what it asks, to find the same row in another folder
    measured_s: float | None = None
    interval: float | None = None  # half-width of the measured median's 95 % interval, as a fraction of the median

    @property
    def counts(self) -> bool:
        """Whether the row counts in statistics."""
        return not self.skipped and self.predicted_s is not None and self.measured_s is not None

    @property
    def in_band(self) -> bool | None:
        """Whether the measured time lies in the band of the prediction; None if there is no band or no time."""
        if self.band is None or self.measured_s is None:
            return None
        return self.band.low_s <= self.measured_s <= self.band.high_s

    @property
    def error(self) -> float:
        """(predicted - measured) / measured; only for rows that count."""
        assert self.predicted_s is not None
        assert self.measured_s is not None
        return self.predicted_s / self.measured_s - 1

    @property
    def log_ratio(self) -> float:
        """log(predicted / measured), which weighs half and twice the time alike; only for rows that count."""
        return math.log1p(self.error)


def table_kind(table: Table, kinds: Sequence[Kind]) -> Kind | None:
    """Return the kind whose needed columns *table* has, of several the one that needs most; None if there is none."""
    fitting = [kind for kind in kinds if all(column in table.position for column in kind.needed)]
    return max(fitting, key=lambda kind: len(kind.needed)) if fitting else None


def compare_folder(folder: Folder, scoring: Scoring, trust: Collection[str] = ("A", "B")) -> list[ComparedRow]:
    """Return every row of *folder* with its prediction, in the order of tables and lines."""
    rows: list[ComparedRow] = []
    for name, table in folder.tables.items():
        kind = table_kind(table, scoring.kinds)
        rows += _unpredicted(name, table) if kind is None else _predicted(name, table, kind, scoring, trust)
    return rows


def _unpredicted(name: str, table: Table) -> Iterator[ComparedRow]:
    for record in table.rows:
        cells = {column: text for column in table.position if (text := table.written(record, column))}
        yield _row(name, table, MeasuredRow(None, math.nan, cells, record=record, labels=cells, skipped=MEASURED_ONLY))


def _predicted(name: str, table: Table, kind: Kind, scoring: Scoring, trust: Collection[str]) -> Iterator[ComparedRow]:
    known = replace(table, kind=kind.name, conventions=frozenset(filled_columns(kind.name)))
    for scored in scoring.score(known, kind, tuple(trust)):
        row = _row(name, table, scored)
        if scored.predicted_s is not None and scored.error is not None:
            row.measured_s = scored.predicted_s / (1 + scored.error)
        yield row


def _row(name: str, table: Table, row: MeasuredRow) -> ComparedRow:
    own = {each.name: getattr(row, each.name) for each in fields(MeasuredRow)}
    own |= {"cells": row.labels, "skipped": one_line(row.skipped, 200)}
    interval = figure(table.cell(row.record, "interval"))
    found = ComparedRow(**own, table=name, name=row_name(table, row.record), key=key_of(table, row.record))
    found.interval = interval if interval is not None and interval >= 0 else None
    return found
