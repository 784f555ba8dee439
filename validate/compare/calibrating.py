"""Calibrate a device and its host on measured operators, launches and steps, and predict rows with the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from simulator.api import Session
from simulator.errors import InputError, TopocastError
from simulator.questions.calibration import Calibration
from simulator.questions.step import StepQuestion
from simulator.topology.parts import GpuPart
from validate.compare.folder import Folder
from validate.compare.host import host_seconds, scale_of_steps, scaled
from validate.compare.rows import ComparedRow
from validate.constants.calibrate import Calibrated, fit_calibration
from validate.tables.cells import NotScored
from validate.tables.names import Names

_FEWEST = 4  # with fewer operators, no device constant is fitted
_HOST_SHARE = 0.3  # of the device's time; steps with less host time are not used to fit the host


@dataclass(frozen=True, slots=True)
class Fitted:
    """A calibration, and the rows that it was fitted to.

    ``operators`` is the fit to operators alone; ``launches`` counts the host constants from ``launch.csv``;
    ``host_scale`` is the factor on host times from ``steps``, None if no step was used.
    """

    calibration: Calibration
    operators: Calibrated | None
    rows: tuple[ComparedRow, ...]
    launches: int = 0
    steps: tuple[ComparedRow, ...] = ()
    host_scale: float | None = None

    @property
    def points(self) -> int:
        """Number of rows and launch constants fitted to."""
        return len(self.rows) + len(self.steps) + self.launches


class Bench:
    """The measured device of a folder: fits its constants and predicts rows with them.

    Raises InputError if *part* is empty or not a device in *names*.
    """

    def __init__(self, part: str, names: Names) -> None:
        if not part:
            raise InputError("which device to calibrate is not known: --topology FILE or --device NAME=PART says it")
        self.part = part
        self._bare = names.session.calibrated({})
        try:
            self._has_host = isinstance(names.devices.described(part), GpuPart)  # a CPU is its own host
        except NotScored as reason:
            raise InputError(str(reason)) from None

    def fit(
        self, operators: Sequence[ComparedRow], folder: Folder | None = None, steps: Sequence[ComparedRow] = ()
    ) -> Fitted:
        """Return a fit of the device and its host to *operators*, the launches of *folder* and *steps*.

        Raises InputError if there are too few rows to fit anything.
        """
        rows = [row for row in operators if row.counts]
        found: Calibrated | None = None
        calibration = Calibration()
        if len(rows) >= _FEWEST:
            found = fit_calibration(self._bare, self.part, rows)
            calibration = found.calibration
        else:
            rows = []
        seconds = host_seconds(folder) if folder is not None and self._has_host else {}
        known = replace(calibration, dispatch=1.0, host=scaled(seconds, 1.0, calibration.dispatch))
        session = self._bare.calibrated({self.part: known})
        predicted = [(row, self._by_host(row, session)) for row in steps if row.counts]
        telling = [(row, predict) for row, predict in predicted if predict is not None]
        scale: float | None = None
        if telling:
            scale = scale_of_steps([(predict, row.measured_s or 0.0) for row, predict in telling])
        if not rows and not seconds and scale is None:
            raise InputError(f"too few rows to calibrate on: {len(operators)} operators, no launches, no steps")
        if seconds or scale is not None:
            host = scaled(seconds, scale or 1.0, calibration.dispatch)
            calibration = replace(calibration, dispatch=1.0, host=host)
        return Fitted(calibration, found, tuple(rows), len(seconds), tuple(row for row, _ in telling), scale)

    def again(self, rows: Sequence[ComparedRow], calibration: Calibration) -> list[ComparedRow]:
        """Return *rows* (operators and steps) predicted with *calibration*, without those it cannot predict."""
        session = self._bare.calibrated({self.part: calibration})
        found = []
        for row in rows:
            if row.asked is not None:
                try:
                    found.append(replace(row, predicted_s=row.asked.time_s(session)))
                except NotScored:
                    continue
        return found

    def _by_host(self, row: ComparedRow, session: Session) -> Callable[[float], float] | None:
        """Return the step time of *row* in seconds as a function of host slowdown; None if the host hardly matters."""
        question = row.asked.question if row.asked is not None else None
        if not self._has_host or not isinstance(question, StepQuestion) or question.micro_batches > 1:
            return None
        if question.options.cuda_graph or question.options.compiled:  # few kernels are launched one by one
            return None
        predict = partial(session.slowed_host_s, question)
        try:
            account = session.account(question)
            predict(1.0)
        except TopocastError:
            return None
        return predict if account.host_s > _HOST_SHARE * account.kernels_s else None
