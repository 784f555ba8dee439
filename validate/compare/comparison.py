"""The comparison of a folder with its predictions, from which texts, documents and reports are made."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence

from simulator.api.calibrations import read_calibration
from simulator.errors import InputError, one_line
from simulator.records import dataclass, field, replace
from validate.compare import calibrating
from validate.compare.classes import (
    ClassErrors,
    ErrorCause,
    Outlier,
    classes_of,
    explain,
    find_outliers,
    row_facts,
    worst_rows,
)
from validate.compare.folder import Drift, Folder, compare_runs, key_of, row_name
from validate.compare.places import SEVERAL, ScoringPlaces, another_host, find_places
from validate.kinds.kind import Kind, MemoryFigure
from validate.kinds.row import MeasuredRow
from validate.machine.checks import load_notes
from validate.machine.measure.duration import duration_s
from validate.score.scoring import CALIBRATED_ON, Scoring, ScoringOptions
from validate.tables.cells import figure
from validate.tables.conventions import filled_columns
from validate.tables.table import Table

MEASURED_ONLY = "measured only: no scorer predicts this table"


@dataclass(frozen=True, slots=True)
class ComparisonOptions:
    """The options of a comparison as the user wrote them; ``trust`` holds the grades that count."""

    topology: str | None = None
    devices: tuple[str, ...] = ()
    calibration: str | None = None
    calibrate: str | None = None
    trust: tuple[str, ...] = ("A", "B")


@dataclass(frozen=True, slots=True)
class Comparison:
    """A folder compared with its predictions; ``worst`` are the rows with the largest errors, and likely causes."""

    folder: Folder
    places: ScoringPlaces
    method: str
    trust: tuple[str, ...]
    rows: tuple[MeasuredRow, ...]
    classes: tuple[ClassErrors, ...]
    outliers: tuple[Outlier, ...]
    worst: tuple[tuple[MeasuredRow, list[ErrorCause]], ...]
    judged: tuple[calibrating.CalibrationErrors, ...] = ()
    judged_notes: tuple[str, ...] = ()
    drift: Drift | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def held(self) -> list[tuple[MeasuredRow, MemoryFigure]]:
        """The figures of memory that were both measured and predicted, each with its row."""
        return [(row, each) for row in self.rows for each in row.memory if each.error is not None]

    @property
    def own(self) -> tuple[MeasuredRow, ...]:
        """The steps measured by ``validate run --workload``."""
        return tuple(row for row in self.rows if row.labels.get("network"))

    @property
    def own_code(self) -> tuple[tuple[MeasuredRow, float], ...]:
        """Steps run with a module's own code, each with its time relative to the module rebuilt from its operators."""
        own_code = [row.labels.get("modules") == "own" for row in self.own]
        asked = [tuple((name, text) for name, text in row.key if name != "modules") for row in self.own]
        every = list(zip(self.own, asked, own_code, strict=True))
        built_s = {what: row.measured_s for row, what, own in every if not own}
        pairs = [(row, row.measured_s, built_s.get(what)) for row, what, own in every if own]
        return tuple((row, own_s / other_s) for row, own_s, other_s in pairs if own_s and other_s)


def table_kind(table: Table, kinds: Sequence[Kind]) -> Kind | None:
    """Return the kind whose needed columns *table* has, of several the one that needs most; None if there is none."""
    fitting = [kind for kind in kinds if all(column in table.position for column in kind.needed)]
    return max(fitting, key=lambda kind: len(kind.needed), default=None)


def compare_folder(folder: Folder, scoring: Scoring, trust: Collection[str] = ("A", "B")) -> list[MeasuredRow]:
    """Return every row of *folder* with its prediction and its name, in the order of tables and lines."""
    rows: list[MeasuredRow] = []
    for name, table in folder.tables.items():
        kind = table_kind(table, scoring.kinds)
        if kind is not None:
            known = replace(table, kind=kind.name, conventions=filled_columns(kind.name))
            mine = list(scoring.score(known, kind, tuple(trust)))
        else:
            columns = table.position
            every = (({name: text for name in columns if (text := table.written(r, name))}, r) for r in table.rows)
            mine = [
                MeasuredRow(None, math.nan, cells, record=record, labels=cells, skipped=MEASURED_ONLY)
                for cells, record in every
            ]
        for row in mine:
            row.table, row.name, row.key = name, row_name(table, row.record), key_of(table, row.record)
            interval = figure(table.cell(row.record, "interval"))
            row.interval = interval if interval is not None and interval >= 0 else None
            row.skipped = one_line(row.skipped, 200)
        rows += mine
    return rows


def scoring_at(places: ScoringPlaces, calibration: str | None = None) -> Scoring:
    """Return what scores rows measured at *places*, with the file *calibration*."""
    return Scoring(ScoringOptions(topology=places.topology, devices=places.devices, calibration=calibration))


def compared(
    folder: Folder, asked: ComparisonOptions, again: Folder | None = None, short: Folder | None = None
) -> Comparison:
    """Compare *folder* with its predictions and, if given, with *again*, another measurement of the same machine.

    With *short*, also judge a calibration on that folder on the rows of *folder* that it lacks.

    Raises InputError if an option is invalid, MissingDependency if calibrating needs SciPy and it is not installed.
    """
    places = find_places(folder, asked.topology, asked.devices)
    scoring = scoring_at(places, asked.calibration)
    rows = compare_folder(folder, scoring, asked.trust)
    method = "data sheet and shared constants"
    if asked.calibration is not None:
        read = read_calibration(asked.calibration).devices
        seen = frozenset(key for device in read.values() for key in device.points.asked)
        # The scorer leaves out operators that a calibration was fitted to, not steps.
        fitted = [row.counts and row.kind == "training" and row.digest in seen for row in rows]
        rows = [replace(row, skipped=CALIBRATED_ON) if used else row for row, used in zip(rows, fitted, strict=True)]
        method = f"calibration of {', '.join(sorted(scoring.names.session.calibrations))}"
    judged: list[calibrating.CalibrationErrors] = []
    judged_notes: list[str] = []
    if short is not None:
        bench = calibrating.FolderDevice(places.part, scoring.names)
        judged, judged_notes = _by_another(bench, folder, short, rows, asked)
    elif asked.calibrate is not None:
        bench = calibrating.FolderDevice(places.part, scoring.names)
        count = sum(row.counts and row.kind == "operators" for row in rows)
        judged = calibrating.judge_within(bench, folder, rows, _share_of(asked.calibrate, folder, count))
        if not judged:
            judged_notes.append(f"too few operators ({count}) to calibrate on some and judge on the others")
    worst = tuple((row, explain(row_facts(row, scoring.names.session))) for row in worst_rows(rows))
    found = tuple(rows), tuple(classes_of(rows)), tuple(find_outliers(rows)), worst
    drift = compare_runs(folder, again) if again is not None else None
    said = tuple(judged), tuple(judged_notes), drift, tuple(_notes(folder, places))
    return Comparison(folder, places, method, asked.trust, *found, *said)


def _by_another(
    device: calibrating.FolderDevice,
    folder: Folder,
    short: Folder,
    rows: Sequence[MeasuredRow],
    asked: ComparisonOptions,
) -> tuple[list[calibrating.CalibrationErrors], list[str]]:
    fitted, fitted_rows = fit_folder(device, short, asked)
    notes = []
    seconds = short.record.get("seconds")
    if isinstance(seconds, int | float):
        notes.append(f"{one_line(short.path, 60)} was measured in {seconds:.0f} s")
    if short.device != folder.device:
        notes.append(f"the two are of different devices: {short.device or 'not said'}, {folder.device or 'not said'}")
    asked_too = set(map(calibrating.question, fitted_rows))
    left = sum(row.counts and calibrating.question(row) in asked_too for row in rows)
    notes.append(f"{left} rows ask what it asked too and are not judged")
    return calibrating.judge_by(device, fitted, fitted_rows, rows), notes


def fit_folder(
    bench: calibrating.FolderDevice, folder: Folder, asked: ComparisonOptions
) -> tuple[calibrating.FittedCalibration, list[MeasuredRow]]:
    """Return a fit to all rows of *folder*, and these rows; raises as :func:`find_places` and :meth:`Bench.fit` do."""
    places = find_places(folder, asked.topology, asked.devices)
    rows = compare_folder(folder, scoring_at(places), asked.trust)
    operators, steps = ([row for row in rows if row.kind == kind] for kind in ("operators", "training"))
    return bench.fit(operators, folder, steps), rows


def _share_of(text: str, folder: Folder, count: int) -> float:
    """Return the share of *count* operators, at most 0.5, that *text* asks for: ``50``, or ``120s`` of measuring.

    Raises InputError if *text* is neither, or if a time is given and ``run.json`` does not record the run's duration.
    """
    plain = text.strip()
    if re.fullmatch(r"0*[1-9][0-9]{0,5}", plain, re.ASCII):
        return min(0.5, int(plain) / count) if count else 0.5
    try:
        wanted_s = duration_s(plain)
    except ValueError:
        shown = one_line(text, 60)
        raise InputError(f"--calibrate: a number of rows such as 50, or a time such as 120s; got '{shown}'") from None
    took_s = folder.record.get("seconds")
    if not isinstance(took_s, int | float) or took_s <= 0:
        raise InputError("--calibrate: run.json does not say how long this took; name a number of rows such as 50")
    return min(0.5, wanted_s / took_s)


def _notes(folder: Folder, places: ScoringPlaces) -> Sequence[str]:
    record = folder.record
    said = [] if record else ["no run.json: where and how this was measured is not known"]
    if record.get("finished") is False:
        said.append(f"the run did not finish: {record.get('end') or 'no reason is on record'}")
    said += load_notes(record)
    if not places.part and places.topology is None and places.how != SEVERAL:
        said.append("the device is none that is built in; --topology FILE or --device NAME=PART says what it is")
    if places.is_assumed and places.topology and (note := another_host(places.topology, folder.environment)):
        said.append(note)
    said += [f"{name}: not read: {reason}" for name, reason in folder.faults.items()]
    return said
