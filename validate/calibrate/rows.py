"""The rows of a table that a device can be calibrated on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from simulator.devices.device import Gpu
from validate.calibrate.sample import digest
from validate.operators.devices import DeviceBook
from validate.operators.predict import predict_operator
from validate.operators.query import COLUMNS_ASKED, OperatorQuery, read_query
from validate.score.csv_text import Record
from validate.score.query import NotScored, number
from validate.score.table import Table

__all__ = ["AskedRow", "calibrating_rows", "countable", "device_rows"]


@dataclass(frozen=True, slots=True)
class AskedRow:
    """A row, what it asks, and the digest of that; nothing of what was measured."""

    record: Record
    query: OperatorQuery
    digest: str


def device_rows(table: Table, book: DeviceBook) -> dict[str, list[AskedRow]]:
    """Return the rows of *table* that can be asked, by the part of their device, in the order of the table."""
    found: dict[str, list[AskedRow]] = {}
    for record in table.rows:
        if len(record.fields) != len(table.header):
            continue  # validate score names such rows
        asked = {column: table.cell(record, column) for column in COLUMNS_ASKED}
        try:
            query = read_query(asked.__getitem__)
            book.get(query.device)
        except NotScored:
            continue
        part = book.part(query.device)
        assert part is not None
        found.setdefault(part, []).append(AskedRow(record, query, digest(asked)))
    return found


def countable(table: Table, rows: Sequence[AskedRow], gpu: Gpu, trust: Collection[str]) -> list[AskedRow]:
    """Return those of *rows* that *gpu* can do, with one of the grades *trust* or none, and a time that is a number."""
    found = []
    for row in rows:
        grade = table.cell(row.record, "trust").upper()
        try:
            number("time_s", table.cell(row.record, "time_s"))
            predict_operator(gpu, row.query)
        except NotScored:
            continue
        if not grade or grade in trust:
            found.append(row)
    return found


def calibrating_rows(table: Table, rows: Sequence[AskedRow], chosen: Collection[str]) -> list[tuple[AskedRow, float]]:
    """Return one row for each digest *chosen* and its measured seconds, in the order of the digests.

    Where several rows ask the same, that of the least time: the others say what disturbed it.
    """
    best: dict[str, tuple[AskedRow, float]] = {}
    for row in rows:
        if row.digest in chosen:
            time_s = number("time_s", table.cell(row.record, "time_s"))
            if row.digest not in best or time_s < best[row.digest][1]:
                best[row.digest] = (row, time_s)
    return [best[key] for key in sorted(best)]
