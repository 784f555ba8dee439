"""Measured rows with their predictions, from any kind of table."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from simulator.bands.composition import Band
from simulator.errors import one_line
from validate.compare.folder import Folder, key_of, row_name, value_of
from validate.kinds import KINDS
from validate.kinds.kind import Asked, Kind
from validate.kinds.row import MeasuredRow
from validate.score.scoring import Scoring
from validate.tables.cells import figure
from validate.tables.conventions import filled_columns
from validate.tables.csv_text import Record
from validate.tables.sample import digest
from validate.tables.table import Table

MEASURED_ONLY = "measured only: no scorer predicts this table"


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """A row of a folder, with its prediction."""

    # table, line, name: where the row is, and what it asks in a few words
    table: str
    line: int
    name: str
    kind: str  # the kind of table: operators, training, ...; empty if nothing predicts it
    cells: Mapping[str, str]  # non-empty cells and the labels of the table's kind, by column in lower case
    key: tuple[tuple[str, str], ...]  # what it asks, to find the same row in another folder
    value: tuple[str, float] | None  # the measured column and its value
    asked: Asked | None = None  # the question to the simulator
    predicted_s: float | None = None
    measured_s: float | None = None
    band: Band | None = None  # 80 % band of the predicted time
    interval: float | None = None  # half-width of the measured median's 95 % interval, as a fraction of the median
    skipped: str = ""  # why it does not count; empty if it does

    @property
    def counts(self) -> bool:
        """Whether the row counts in statistics."""
        return not self.skipped and self.predicted_s is not None and self.measured_s is not None

    @property
    def measured(self) -> MeasuredRow | None:
        """The row without its prediction, as constants are fitted to it; None without a question or a time."""
        if self.asked is None or not self.measured_s:
            return None
        kind = next(kind for kind in KINDS if kind.name == self.kind)
        key = digest({column: self.cells.get(column, "") for column in kind.asked})
        return MeasuredRow(self.asked, self.measured_s, self.cells, self.kind, self.table, self.line, key)

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


def kind_of(table: Table, kinds: Sequence[Kind]) -> Kind | None:
    """Return the kind whose needed columns *table* has, of several the one that needs most; None if there is none."""
    fitting = [kind for kind in kinds if all(column in table.position for column in kind.needed)]
    return max(fitting, key=lambda kind: len(kind.needed)) if fitting else None


def compare_folder(folder: Folder, scoring: Scoring, trust: Collection[str] = ("A", "B")) -> list[ComparedRow]:
    """Return every row of *folder* with its prediction, in the order of tables and lines."""
    rows: list[ComparedRow] = []
    for name, table in folder.tables.items():
        kind = kind_of(table, scoring.kinds)
        rows += _unpredicted(name, table) if kind is None else _predicted(name, table, kind, scoring, trust)
    return rows


def _row(name: str, table: Table, record: Record, kind: str, cells: Mapping[str, str]) -> ComparedRow:
    """Return a row without its prediction."""
    interval = _interval(table.cell(record, "interval"))
    key, value = key_of(table, record), value_of(table, record)
    return ComparedRow(name, record.line, row_name(table, record), kind, cells, key, value, interval=interval)


def _unpredicted(name: str, table: Table) -> list[ComparedRow]:
    rows = [_row(name, table, record, "", _cells(table, record.fields)) for record in table.rows]
    return [replace(row, skipped=MEASURED_ONLY) for row in rows]


def _predicted(name: str, table: Table, kind: Kind, scoring: Scoring, trust: Collection[str]) -> list[ComparedRow]:
    rows = []
    known = replace(table, kind=kind.name, conventions=frozenset(filled_columns(kind.name)))
    for scored in scoring.score(known, kind, tuple(trust)):
        row = _row(name, table, scored.record, kind.name, scored.labels)
        row = replace(row, asked=scored.asked, predicted_s=scored.predicted_s, band=scored.band)
        row = replace(row, skipped=one_line(scored.skipped, 200))
        if scored.predicted_s is not None and scored.error is not None:
            row = replace(row, measured_s=scored.predicted_s / (1 + scored.error))
        rows.append(row)
    return rows


def _cells(table: Table, fields: Sequence[str]) -> dict[str, str]:
    found = {name: fields[i].strip() for name, i in table.position.items() if i < len(fields)}
    return {name: text for name, text in found.items() if text}


def _interval(text: str) -> float | None:
    value = figure(text)
    return value if value is not None and value >= 0 else None
