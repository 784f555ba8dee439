"""Scoring by the command line's options: the machines and devices that rows mean, and their calibrations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from simulator.api import Session
from simulator.api.calibrations import Calibration, read_calibration
from simulator.errors import Fault, InputError
from simulator.records import dataclass, field, replace
from validate.kinds import KINDS, OPERATORS, Kind
from validate.kinds.row import MeasuredRow, every_row
from validate.score.predict import in_processes, in_turn
from validate.score.score import ranked, score_rows
from validate.tables.cells import NotScored, number
from validate.tables.files import read_bytes, shown_as
from validate.tables.names import DeviceNames, MachineNames, RowNames, machines_named
from validate.tables.table import Table, read_table

_NEEDED = ("row_id", "predictor", "predicted_s")


def read_published(file: str) -> dict[str, dict[str, float]]:
    """Return the predicted seconds in the table *file*, by row and predictor.

    Raises InputError where it cannot be read, lacks a column, or has a prediction that is not a positive number.
    """
    table = read_table(read_bytes(file), shown_as(file), _NEEDED, _NEEDED, "published predictions")
    found: dict[str, dict[str, float]] = {}
    for record in table.rows:
        try:
            predicted_s = number("predicted_s", table.cell(record, "predicted_s"))
        except NotScored as reason:
            raise InputError(Fault(str(reason), shown_as(file), record.line, 1)) from None
        found.setdefault(table.cell(record, "row_id"), {})[table.cell(record, "predictor")] = predicted_s
    return found


CALIBRATED_ON = "calibrated on"
_MANY = 100  # rows that are worth the start of more processes
_MOST_JOBS = 8  # each holds its own machines and networks, some hundred MB


@dataclass(frozen=True, slots=True)
class ScoringOptions:
    """The options of the command line that affect predictions, with their defaults."""

    topology: str | None = None
    machines: tuple[str, ...] = ()
    strategy: str | None = None
    devices: tuple[str, ...] = ()
    calibration: str | None = None
    baselines: str | None = None
    calibrations: Mapping[str, Calibration] = field(default_factory=dict)  # by part, used where no file is given


class Scoring:
    """Scores tables with the names and calibrations of *options*.

    Raises InputError where an option names something unknown.
    """

    def __init__(self, options: ScoringOptions) -> None:
        self.options = options
        machines = MachineNames(options.topology, machines_named(options.machines))
        devices = DeviceNames(options.devices, options.topology)
        calibrations: dict[str, Calibration] = dict(options.calibrations)
        self._seen: frozenset[str] = frozenset()
        if options.calibration is not None:
            known = DeviceNames(topology=options.topology).names
            read = read_calibration(options.calibration, known).devices
            calibrations = {known[name]: device.calibration for name, device in read.items()}
            self._seen = frozenset(key for device in read.values() for key in device.points.asked)
        self.names = RowNames(machines, devices, Session(calibrations), options.strategy or "nccl")
        self._published = read_published(options.baselines) if options.baselines is not None else {}
        self._kinds = {kind.name: kind.with_names(self.names) for kind in KINDS}

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of tables, with the columns they need given the options' names."""
        return tuple(self._kinds.values())

    def calibrated(self, calibrations: Mapping[str, Calibration]) -> RowNames:
        """Return the names with *calibrations*, by part, in place of the current ones."""
        return replace(self.names, session=self.names.session.calibrated(calibrations))

    def method(self, kind: Kind) -> str:
        """Return a short description of how rows of *kind* are predicted."""
        if kind.name == "collectives":
            return f"strategy {self.names.strategy}"
        known = self.names.session.calibrations
        if known and kind.method == OPERATORS.method:
            return f"calibration of {', '.join(sorted(known))}"
        return kind.method

    def score(
        self,
        table: Table,
        kind: Kind,
        trust: Sequence[str],
        *,
        names: RowNames | None = None,
        seen: frozenset[str] = frozenset(),
        as_written: bool = False,
        jobs: int = 1,
        advance: Callable[[], None] = lambda: None,
    ) -> Iterator[MeasuredRow]:
        """Yield the rows of *table* with their predictions.

        Rows of operators whose question is among *seen*, the digests to which calibrations were fitted, do not count;
        nor do those to which the options' calibration was fitted.  *as_written*: use the predictions in the table, as
        ``validate score --out`` writes them.  *jobs*: most processes that predict.
        """
        fitted_to = (seen | self._seen) if kind.name == OPERATORS.name else frozenset()

        names = replace(names or self.names, folder=str(Path(table.file).parent))
        predict = None if as_written else in_turn(names.session)
        if predict and kind.is_simulated and jobs > 1 and len(table.rows) >= _MANY:
            predict = in_processes(names.session, min(jobs, _MOST_JOBS))
        return score_rows(
            ranked(every_row(table, kind, names), table, kind, names),
            trust,
            published=self._published,
            set_aside=lambda row: CALIBRATED_ON if row.digest in fitted_to else "",
            predict=predict,
            advance=advance,
        )

    def check(self, tables: Sequence[tuple[Table, Kind]], calibrate: int = 0) -> None:
        """Raise InputError for options that apply to none of *tables*, and for names that no row has."""
        kinds = {kind.name for _, kind in tables}
        options = self.options
        of_machines = ("collectives", "training", "copies", "storage")
        for option, value, read in (
            ("--strategy", options.strategy, ("collectives",)),
            ("--topology", options.topology, ("operators", *of_machines)),  # operators of a CPU
            ("--machine", options.machines, of_machines),
            ("--device", options.devices, ("operators", "memory", "launch")),
            ("--calibrate", calibrate, ("operators",)),
            ("--calibration", options.calibration, ("operators", "training", "copies", "memory", "launch")),
            ("--baselines", options.baselines, ("training",)),
        ):
            if value and not kinds.intersection(read):
                given = " and ".join(sorted(kinds))
                known = " and ".join([*([", ".join(read[:-1])] if read[1:] else []), read[-1]])
                raise InputError(f"{option} is for tables of {known}; these are of {given}")
        # A name that the user assigns may occur in any of several tables.
        for place, book in (("machine", self.names.machines), ("device", self.names.devices)):
            mine = [table for table, kind in tables if place in self._kinds[kind.name].asked]
            if mine:
                book.check_used(table.cell(row, place) for table in mine for row in table.rows)
