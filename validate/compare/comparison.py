"""The comparison of a folder with its predictions, from which texts, documents and reports are made."""

from __future__ import annotations

import re
from collections.abc import Sequence

from simulator.api.calibrations import read_calibration
from simulator.errors import InputError, one_line
from simulator.records import dataclass, field, replace
from validate.compare import calibrating
from validate.compare.classes import ClassErrors, Outlier, classes_of, find_outliers, worst_rows
from validate.compare.drift import Drift, compare_runs
from validate.compare.explain import ErrorCause, explain, row_facts
from validate.compare.folder import Folder
from validate.compare.places import SEVERAL, ScoringPlaces, find_places
from validate.compare.rows import compare_folder
from validate.kinds.kind import MemoryFigure
from validate.kinds.row import MeasuredRow
from validate.machine.checks import load_notes
from validate.machine.measure.duration import duration_s
from validate.score.scoring import CALIBRATED_ON, Scoring, ScoringOptions


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
        built = {_twin(row): row for row in self.own if row.labels.get("modules") != "own"}
        found = [(row, built.get(_twin(row))) for row in self.own if row.labels.get("modules") == "own"]
        return tuple(
            (row, row.measured_s / twin.measured_s)
            for row, twin in found
            if twin is not None and row.measured_s and twin.measured_s
        )


def _twin(row: MeasuredRow) -> tuple[tuple[str, str], ...]:
    return tuple((name, text) for name, text in row.key if name != "modules")


def compared(
    folder: Folder, asked: ComparisonOptions, again: Folder | None = None, short: Folder | None = None
) -> Comparison:
    """Compare *folder* with its predictions and, if given, with *again*, another measurement of the same machine.

    With *short*, also judge a calibration on that folder on the rows of *folder* that it lacks.

    Raises InputError if an option is invalid, MissingDependency if calibrating needs SciPy and it is not installed.
    """
    places = find_places(folder, asked.topology, asked.devices)
    options = ScoringOptions(topology=places.topology, devices=places.devices, calibration=asked.calibration)
    scoring = Scoring(options)
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
    if short is not None or asked.calibrate is not None:
        bench = calibrating.FolderDevice(places.part, scoring.names)
        if short is not None:
            judged, judged_notes = _by_another(bench, folder, short, rows, asked)
        else:
            share = share_of(asked.calibrate or "", folder, rows)
            judged = calibrating.judge_within(bench, folder, rows, share)
            if not judged:
                count = sum(row.counts and row.kind == "operators" for row in rows)
                judged_notes.append(f"too few operators ({count}) to calibrate on some and judge on the others")
    worst = tuple((row, explain(row_facts(row, scoring.names.session))) for row in worst_rows(rows))
    return Comparison(
        folder,
        places,
        method,
        asked.trust,
        tuple(rows),
        tuple(classes_of(rows)),
        tuple(find_outliers(rows)),
        worst,
        tuple(judged),
        tuple(judged_notes),
        compare_runs(folder, again) if again is not None else None,
        tuple(_notes(folder, places)),
    )


def _by_another(
    bench: calibrating.FolderDevice,
    folder: Folder,
    short: Folder,
    rows: Sequence[MeasuredRow],
    asked: ComparisonOptions,
) -> tuple[list[calibrating.CalibrationErrors], list[str]]:
    fitted, fitted_rows = fit_folder(bench, short, asked)
    notes = []
    seconds = short.record.get("seconds")
    if isinstance(seconds, int | float):
        notes.append(f"{one_line(short.path, 60)} was measured in {seconds:.0f} s")
    if short.device != folder.device:
        notes.append(f"the two are of different devices: {short.device or 'not said'}, {folder.device or 'not said'}")
    asked_too = {calibrating.question(row) for row in fitted_rows}
    left = sum(row.counts and calibrating.question(row) in asked_too for row in rows)
    notes.append(f"{left} rows ask what it asked too and are not judged")
    return calibrating.judge_by(bench, fitted, fitted_rows, rows), notes


def fit_folder(
    bench: calibrating.FolderDevice, folder: Folder, asked: ComparisonOptions
) -> tuple[calibrating.FittedCalibration, list[MeasuredRow]]:
    """Return a fit to all rows of *folder*, and these rows; raises as :func:`find_places` and :meth:`Bench.fit` do."""
    places = find_places(folder, asked.topology, asked.devices)
    rows = compare_folder(
        folder, Scoring(ScoringOptions(topology=places.topology, devices=places.devices)), asked.trust
    )
    operators = [row for row in rows if row.kind == "operators"]
    steps = [row for row in rows if row.kind == "training"]
    return bench.fit(operators, folder, steps), rows


def share_of(text: str, folder: Folder, rows: Sequence[MeasuredRow]) -> float:
    """Return the share of rows, at most 0.5, that *text* asks for: ``50`` operators, or ``120s`` of measuring.

    Raises InputError if *text* is neither, or if a time is given and ``run.json`` does not record the run's duration.
    """
    count = sum(row.counts and row.kind == "operators" for row in rows)
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
    said = []
    record = folder.record
    if not record:
        said.append("no run.json: where and how this was measured is not known")
    elif record.get("finished") is False:
        said.append(f"the run did not finish: {record.get('end') or 'no reason is on record'}")
    said += load_notes(record)
    if not places.part and places.topology is None and places.how != SEVERAL:
        said.append("the device is none that is built in; --topology FILE or --device NAME=PART says what it is")
    said += [f"{name}: not read: {reason}" for name, reason in folder.faults.items()]
    return said
