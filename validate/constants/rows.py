"""The rows of a table on which a device can be calibrated."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from simulator.api import Session
from simulator.api.calibrations import Calibration
from simulator.errors import one_line
from validate.kinds.kind import Asked
from validate.kinds.operators import COLUMNS_ASKED, read_operator
from validate.kinds.serving import replays
from validate.tables.cells import NotScored, measured_time, number
from validate.tables.csv_text import Record
from validate.tables.names import Names
from validate.tables.sample import choose, digest
from validate.tables.table import Table

__all__ = ["AskedRow", "Skip", "calibrate_devices", "calibrating_rows", "countable", "device_rows"]

Skip = Callable[[Record, str], None]
"""Called with each unused row and the reason."""


@dataclass(frozen=True, slots=True)
class AskedRow:
    """A row, its question and the question's digest, without the measured time."""

    record: Record
    asked: Asked
    op: str
    digest: str


def _ignore(record: Record, reason: str) -> None:
    del record, reason


def device_rows(table: Table, names: Names, skip: Skip = _ignore) -> dict[str, list[AskedRow]]:
    """Return the rows of *table* that can be read as questions, by the device's part, in the order of the table."""
    found: dict[str, list[AskedRow]] = {}
    for record in table.rows:
        if len(record.fields) != len(table.header):
            skip(record, f"{len(record.fields)} fields where the header has {len(table.header)}")
            continue
        cells = {column: table.cell(record, column) for column in COLUMNS_ASKED}
        try:
            asked = read_operator(cells.__getitem__, names)
            names.device(cells["device"])
        except NotScored as reason:
            skip(record, str(reason))
            continue
        part = names.devices.part(cells["device"])
        assert part is not None
        found.setdefault(part, []).append(AskedRow(record, asked, cells["op"], digest(cells)))
    return found


def countable(
    table: Table, rows: Sequence[AskedRow], session: Session, trust: Collection[str], skip: Skip = _ignore
) -> list[AskedRow]:
    """Return the *rows* that can be predicted, have a plausible time, and a grade in *trust* or none.

    Attention of serving frameworks does not count: their kernels differ by more than devices do.
    """
    found = []
    for row in rows:
        grade = table.cell(row.record, "trust").upper()
        try:
            _seconds(table, row)
            row.asked.time_s(session)
            if grade and grade not in trust:
                raise NotScored(f"trust {one_line(grade, 20)}")
            if row.op == "attention" and replays(table.cell(row.record, "software")):
                raise NotScored("attention of a framework for serving: what it runs along is not part of the device")
        except NotScored as reason:
            skip(row.record, str(reason))
            continue
        found.append(row)
    return found


def _seconds(table: Table, row: AskedRow) -> float:
    return measured_time(number("time_s", table.cell(row.record, "time_s")))


def calibrating_rows(table: Table, rows: Sequence[AskedRow], chosen: Collection[str]) -> list[tuple[AskedRow, float]]:
    """Return one row for each digest *chosen*, with its measured seconds, in the order of digests.

    Of several rows with the same question, it takes the fastest, which was disturbed least.
    """
    best: dict[str, tuple[AskedRow, float]] = {}
    for row in rows:
        if row.digest in chosen:
            time_s = _seconds(table, row)
            if row.digest not in best or time_s < best[row.digest][1]:
                best[row.digest] = (row, time_s)
    return [best[key] for key in sorted(best)]


def calibrate_devices(
    table: Table, names: Names, trust: Sequence[str], count: int
) -> tuple[dict[str, Calibration], frozenset[str]]:
    """Return a calibration of each device of *table* on *count* of its rows (at most half), and their digests.

    Raises MissingDependency if SciPy is not installed.
    """
    from validate.constants.calibrate import fit_calibration

    calibrations: dict[str, Calibration] = {}
    seen: set[str] = set()
    for part, rows in device_rows(table, names).items():
        usable = countable(table, rows, names.session, trust)
        taken = choose((row.digest for row in usable), count)
        if taken:
            points = [(row.asked, row.op, time_s) for row, time_s in calibrating_rows(table, usable, taken)]
            calibrations[part] = fit_calibration(names.session, part, points).calibration
            seen |= taken
    return calibrations, frozenset(seen)
