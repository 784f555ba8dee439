"""The rows of a table that a device can be calibrated on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from simulator.devices.predict import Device
from simulator.errors import one_line
from validate.calibrate.sample import digest
from validate.operators.devices import DeviceBook
from validate.operators.predict import predict_operator
from validate.operators.query import COLUMNS_ASKED, OperatorQuery, read_query
from validate.operators.serving import replays
from validate.score.csv_text import Record
from validate.score.query import NotScored, measured_time, number
from validate.score.table import Table

__all__ = ["AskedRow", "Skip", "calibrating_rows", "countable", "device_rows"]

Skip = Callable[[Record, str], None]
"""Is told which row is not used, and why."""


@dataclass(frozen=True, slots=True)
class AskedRow:
    """A row, what it asks, and the digest of that; nothing of what was measured."""

    record: Record
    query: OperatorQuery
    digest: str


def _ignore(record: Record, reason: str) -> None:
    del record, reason


def device_rows(table: Table, book: DeviceBook, skip: Skip = _ignore) -> dict[str, list[AskedRow]]:
    """Return the rows of *table* that can be asked, by the part of their device, in the order of the table."""
    found: dict[str, list[AskedRow]] = {}
    for record in table.rows:
        if len(record.fields) != len(table.header):
            skip(record, f"{len(record.fields)} fields where the header has {len(table.header)}")
            continue
        asked = {column: table.cell(record, column) for column in COLUMNS_ASKED}
        try:
            query = read_query(asked.__getitem__)
            book.get(query.device)
        except NotScored as reason:
            skip(record, str(reason))
            continue
        part = book.part(query.device)
        assert part is not None
        found.setdefault(part, []).append(AskedRow(record, query, digest(asked)))
    return found


def countable(
    table: Table, rows: Sequence[AskedRow], gpu: Device, trust: Collection[str], skip: Skip = _ignore
) -> list[AskedRow]:
    """Return those of *rows* that *gpu* can do, with one of the grades *trust* or none, and a time that can be.

    Attention of frameworks for serving does not count: their kernels differ by more than devices do.
    """
    found = []
    for row in rows:
        grade = table.cell(row.record, "trust").upper()
        try:
            _seconds(table, row)
            predict_operator(gpu, row.query)
            if grade and grade not in trust:
                raise NotScored(f"trust {one_line(grade, 20)}")
            if row.query.op == "attention" and replays(row.query.software):
                raise NotScored("attention of a framework for serving: what it runs along is no part of the device")
        except NotScored as reason:
            skip(row.record, str(reason))
            continue
        found.append(row)
    return found


def _seconds(table: Table, row: AskedRow) -> float:
    return measured_time(number("time_s", table.cell(row.record, "time_s")))


def calibrating_rows(table: Table, rows: Sequence[AskedRow], chosen: Collection[str]) -> list[tuple[AskedRow, float]]:
    """Return one row for each digest *chosen* and its measured seconds, in the order of the digests.

    Where several rows ask the same, that of the least time: the others say what disturbed it.
    """
    best: dict[str, tuple[AskedRow, float]] = {}
    for row in rows:
        if row.digest in chosen:
            time_s = _seconds(table, row)
            if row.digest not in best or time_s < best[row.digest][1]:
                best[row.digest] = (row, time_s)
    return [best[key] for key in sorted(best)]
