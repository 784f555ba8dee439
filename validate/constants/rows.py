"""The rows of tables to which constants are fitted, shared ones or those of a device."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from simulator.api import Session
from simulator.api.calibrations import Calibration
from simulator.errors import one_line
from validate.kinds import KINDS, OPERATORS
from validate.kinds.kind import read_measurements
from validate.kinds.row import MeasuredRow, every_row
from validate.kinds.timing import replays
from validate.tables.cells import NotScored
from validate.tables.names import RowNames
from validate.tables.statistics import sampled_digests
from validate.tables.table import Table

Skip = Callable[[int, str], None]
"""Called with the line of each unused row and the reason."""

_APART = 1.25  # chosen: times of one question that differ by more are of different work


def read_rows(files: Sequence[str], names: RowNames, kinds: Collection[str]) -> list[MeasuredRow]:
    """Return the measured rows of *files* of *kinds*; raises InputError if one cannot be read or lacks a column."""
    every = (read_measurements(file, KINDS) for file in files)
    rows = (row for table, kind in every if kind.name in kinds for row in every_row(table, kind, names))
    return [row for row in rows if row.asked and not row.untimed]


def device_rows(table: Table, names: RowNames, skip: Skip = lambda _line, _why: None) -> dict[str, list[MeasuredRow]]:
    """Return the rows of operators of *table* by the device's part, in the order of the table."""
    found: dict[str, list[MeasuredRow]] = {}
    for row in every_row(table, OPERATORS, names):
        try:
            if row.asked is None:
                raise NotScored(row.skipped)
            names.device(row.place)
        except NotScored as reason:
            skip(row.line, str(reason))
            continue
        part = names.devices.part(row.place)
        assert part is not None
        found.setdefault(part, []).append(row)
    return found


def countable(
    rows: Sequence[MeasuredRow], session: Session, trust: Collection[str], skip: Skip = lambda _line, _why: None
) -> list[MeasuredRow]:
    """Return the *rows* that can be predicted, have a plausible time, and a grade in *trust* or none.

    Attention of serving frameworks does not count: their kernels differ by more than devices do.
    """
    found = []
    for row in rows:
        try:
            if row.untimed:
                raise NotScored(row.untimed)
            row.asks.time_s(session)
            if row.grade and row.grade not in trust:
                raise NotScored(f"trust {one_line(row.grade, 20)}")
            if row.op == "attention" and replays(row.cells.get("software", "")):
                raise NotScored("attention of a framework for serving: what it runs along is not part of the device")
        except NotScored as reason:
            skip(row.line, str(reason))
            continue
        found.append(row)
    return found


def calibrating_rows(rows: Sequence[MeasuredRow], chosen: Collection[str]) -> list[MeasuredRow]:
    """Return one of *rows* for each digest *chosen*, in the order of digests.

    Of several rows with the same question, it takes the fastest, which was disturbed least.  Where they are further
    apart than disturbances, something that no column says decides, and none is taken.
    """
    alike: dict[str, list[MeasuredRow]] = {}
    for row in rows:
        if row.digest in chosen:
            alike.setdefault(row.digest, []).append(row)
    best = [min(alike[key], key=lambda row: row.time_s) for key in sorted(alike)]
    return [row for row in best if max(each.time_s for each in alike[row.digest]) <= _APART * row.time_s]


def calibrate_devices(
    table: Table, names: RowNames, trust: Sequence[str], count: int
) -> tuple[dict[str, Calibration], frozenset[str]]:
    """Return each device's calibration from *count* rows (at most half), and digests; raises MissingDependency."""
    from validate.constants.calibrate import fit_calibration

    calibrations, seen = dict[str, Calibration](), frozenset[str]()
    for part, rows in device_rows(table, names).items():
        usable = countable(rows, names.session, trust)
        taken = sampled_digests((row.digest for row in usable), count)
        if taken:
            calibrations[part] = fit_calibration(names.session, part, calibrating_rows(usable, taken)).calibration
            seen |= taken
    return calibrations, seen
