"""Fit a device and its host to measured operators, launches and steps; predict again with what was fitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from simulator.devices.calibration import Calibration
from simulator.devices.gpu.gpu import Gpu
from simulator.errors import InputError, ToposimError
from simulator.network.machine import Machine
from simulator.step.issue import Issue, issues_of
from simulator.step.place import find_place
from simulator.topology.catalogue import load_part
from simulator.topology.load import load_topology
from simulator.topology.parts import GpuPart
from validate.calibrate.fit import Calibrated, fit_calibration
from validate.compare.facts import network_of
from validate.compare.folder import Folder
from validate.compare.host import host_seconds, scale_of_steps, scaled
from validate.compare.rows import ComparedRow
from validate.operators.devices import DeviceBook
from validate.operators.predict import predict_operator
from validate.operators.query import OperatorQuery
from validate.score.machines import MachineBook
from validate.score.query import NotScored
from validate.score.scorers import ScorerOptions
from validate.training.predict import StepPredictor
from validate.training.query import TrainingQuery

__all__ = ["Bench", "Fitted"]

_FEWEST = 4  # operators below which nothing of a device is fitted
_HOST_SHARE = 0.3  # of the device's time: below it a step says nothing of its host


@dataclass(frozen=True, slots=True)
class Fitted:
    """What was fitted, and to how many rows of which kind; ``operators`` is the fit to these alone."""

    calibration: Calibration
    operators: Calibrated | None
    rows: tuple[ComparedRow, ...]
    launches: int = 0
    steps: tuple[ComparedRow, ...] = ()
    host_scale: float | None = None

    @property
    def points(self) -> int:
        """Rows that something was fitted to."""
        return len(self.rows) + len(self.steps) + self.launches


class Bench:
    """The device and machine that a folder is of, to fit and to predict rows with.

    Raises
    ------
    InputError
        Where *part* is none of the devices that *options* know.

    """

    def __init__(self, part: str, options: ScorerOptions) -> None:
        self.part = part
        self._options = options
        self._machines = MachineBook(options.topology)
        if not part:
            raise InputError("which device to calibrate is not known: --topology FILE or --device NAME=PART says it")

    def fit(
        self, operators: Sequence[ComparedRow], folder: Folder | None = None, steps: Sequence[ComparedRow] = ()
    ) -> Fitted:
        """Return what *operators*, the launches of *folder* and *steps* say of the device and its host.

        Raises
        ------
        InputError
            Where there are too few rows to fit anything to.

        """
        rows = [row for row in operators if row.counts and isinstance(row.query, OperatorQuery)]
        found: Calibrated | None = None
        calibration = Calibration()
        if len(rows) >= _FEWEST:
            device = self._book({}).get(rows[0].query.device, rows[0].query.threads)
            found = fit_calibration(device, [(row.query, row.measured_s or 0.0) for row in rows])
            calibration = found.calibration
        else:
            rows = []
        seconds = host_seconds(folder) if folder is not None and self._issues_ahead() else {}
        known = replace(calibration, dispatch=1.0, host=scaled(seconds, 1.0, calibration.dispatch))
        issued = [(row, self._issues(row, known)) for row in steps if row.counts]
        telling = [(row, issues) for row, issues in issued if issues is not None]
        scale: float | None = None
        if telling:
            scale = scale_of_steps([(issues, row.measured_s or 0.0) for row, issues in telling])
        if not rows and not seconds and scale is None:
            raise InputError(f"too few rows to calibrate on: {len(operators)} operators, no launches, no steps")
        if seconds or scale is not None:
            host = scaled(seconds, scale or 1.0, calibration.dispatch)
            calibration = replace(calibration, dispatch=1.0, host=host)
        return Fitted(calibration, found, tuple(rows), len(seconds), tuple(row for row, _ in telling), scale)

    def again(self, rows: Sequence[ComparedRow], calibration: Calibration) -> list[ComparedRow]:
        """Return *rows* (operators and steps) as predicted with *calibration*."""
        book = self._book({self.part: calibration})
        steps = StepPredictor(self._machines, {self.part: calibration})
        found = []
        for row in rows:
            try:
                if isinstance(row.query, OperatorQuery):
                    device = book.get(row.query.device, row.query.threads)
                    predicted_s = predict_operator(device, row.query)
                elif isinstance(row.query, TrainingQuery):
                    predicted_s = steps.predict_s(row.query)
                else:
                    continue
            except NotScored:
                continue
            found.append(replace(row, predicted_s=predicted_s))
        return found

    def _issues_ahead(self) -> bool:
        """Return whether a host issues to the device: a CPU computes where it issues."""
        part = load_part(self.part)
        if part is None and self._options.topology is not None:
            part = next(
                (d.part for d in load_topology(self._options.topology).devices if d.part_name == self.part), None
            )
        return isinstance(part, GpuPart)

    def _book(self, calibrations: Mapping[str, Calibration]) -> DeviceBook:
        return DeviceBook(self._options.devices, calibrations, self._options.topology)

    def _issues(self, row: ComparedRow, calibration: Calibration) -> list[Issue] | None:
        """Return what the host issues in the step of *row*; None where it says nothing of the host."""
        query = row.query
        if not isinstance(query, TrainingQuery) or query.micro_batches > 1:
            return None
        if query.options.cuda_graph or query.options.compiled:  # hardly anything is issued one by one
            return None
        try:
            device = self._gpu(self._machines.get(query.machine, 1).machine, calibration)
            if device is None:
                return None
            issues = issues_of(device, network_of(query), query.options)
        except (NotScored, ToposimError):
            return None
        host_s, device_s = (sum(getattr(issue, name) for issue in issues) for name in ("host_s", "device_s"))
        return issues if host_s > _HOST_SHARE * device_s else None

    def _gpu(self, machine: Machine, calibration: Calibration) -> Gpu | None:
        device = find_place(machine, None, {}).device
        if not isinstance(device, Gpu):
            return None
        return replace(device, calibration=calibration)
