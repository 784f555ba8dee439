"""Calibrate a device and its host on measured operators, launches and steps, and judge what that is worth.

It is judged on four sets of unseen rows, each harder than the one before: other rows, other shapes, other operators,
and steps of whole networks.  The SHA-256 of a row's question decides whether it is fitted to, so the choice depends
neither on measured times nor on the order of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from statistics import median

from simulator.api import Session
from simulator.api.calibrations import host_constants
from simulator.constants import DEFAULT
from simulator.errors import InputError, TopocastError
from simulator.questions.calibration import ISOLATED, Calibration
from simulator.questions.step import StepQuestion
from simulator.records import dataclass, replace
from simulator.topology.parts import GpuPart
from validate.compare.classes import ClassErrors, class_errors
from validate.compare.clocks import CLOCKS, clock_factors
from validate.compare.folder import Folder
from validate.constants.calibrate import CalibrationFactors, fit_calibration
from validate.kinds.row import MeasuredRow
from validate.kinds.timing import TimingCosts
from validate.tables.cells import NotScored
from validate.tables.names import RowNames
from validate.tables.share import digest

LAUNCH = "launch.csv"
_PLAIN = ("relu", "gelu", "softmax", "dropout", "max_pool", "layer_norm")  # no host work beyond the call
_BESIDES = {"linear": "product_s", "conv2d": "convolution_s", "batch_norm": "batch_norm_s", "lstm": "recurrent_s"}
_PARAMETERS = 64  # parameters of the measured optimisers
_TWO = 2  # parameters of a layer norm
# Standard deviations of logarithms: of a host's speed before any step is measured, and of a well predicted step time.
_PRIOR, _SCATTER = 0.5, 0.05
_FURTHEST = math.log(8.0)
_FINE = 1e-3  # precision of the scale's logarithm


def host_seconds(folder: Folder) -> dict[str, float]:
    """Return the dispatch constants measured in ``launch.csv`` of *folder*, in seconds; empty if there are none.

    The forward constant is the median over plain layers; those of products, convolutions, ... are the time of such a
    layer beyond it.  The backward constant is the time of forward and backward pass minus forward alone.
    """
    times: dict[str, float] = {}
    for cell, time_s in folder.known_times(LAUNCH):
        times.setdefault(cell("metric"), time_s)
    forward = {name: times.get(f"host time of {name}, forward, recorded", 0.0) for name in (*_PLAIN, *_BESIDES)}
    whole = {name: times.get(f"host time of {name}, forward and backward", 0.0) for name in (*_PLAIN, *_BESIDES)}
    found: dict[str, float] = {}
    plain = [forward[name] for name in _PLAIN if forward[name] > 0]
    if plain:
        found["forward_s"] = median(plain)
        for name, constant in _BESIDES.items():
            if forward[name] > 0:
                found[constant] = max(0.0, forward[name] - found["forward_s"])
    bare = [whole[name] - forward[name] for name in _PLAIN[:-1] if whole[name] > forward[name] > 0]
    if bare:
        found["backward_s"] = median(bare)
        norm_s = whole["layer_norm"] - forward["layer_norm"]
        if norm_s > 0:
            found["gradient_s"] = max(0.0, (norm_s - found["backward_s"]) / _TWO)
    update_s = times.get("host time of a step of SGD with momentum, foreach", 0.0)
    if update_s > 0:
        found["update_s"] = update_s / _PARAMETERS
    graph_s = times.get("host time of a graph of 1 kernel", 0.0)
    if graph_s > 0:
        found["graph_launch_s"] = graph_s
    return found


def scale_of_steps(steps: Sequence[tuple[Callable[[float], float], float]]) -> float:
    """Return the factor on host times that best fits *steps*: pairs of a prediction by scale and a measured time, in s.

    It minimises a soft L1 loss of log(predicted / measured) with a prior at 1, by a grid and a golden-section search.
    """

    def loss(x: float) -> float:
        misses = [math.log(predict(math.exp(x)) / measured_s) / _SCATTER for predict, measured_s in steps]
        return sum(2.0 * (math.sqrt(1.0 + miss * miss) - 1.0) for miss in misses) + (x / _PRIOR) ** 2

    grid = [_FURTHEST * i / 12 for i in range(-12, 13)]
    losses = [loss(x) for x in grid]
    best = min(range(len(grid)), key=lambda i: losses[i])
    low, high = grid[max(0, best - 1)], grid[min(len(grid) - 1, best + 1)]
    golden = (math.sqrt(5.0) - 1.0) / 2.0
    while high - low > _FINE:
        left, right = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, right) if loss(left) < loss(right) else (left, high)
    return math.exp((low + high) / 2)


def scaled_constants(measured: Mapping[str, float], scale: float, isolated: float) -> dict[str, float]:
    """Return all dispatch constants in seconds: *measured* ones, else shared ones, times *scale*.

    Constants of isolated calls are multiplied by *isolated* instead.
    """
    constants = {**host_constants(), **{name: getattr(DEFAULT(TimingCosts), name) for name in ISOLATED}, **measured}
    return {
        name: float(f"{value * (isolated if name in ISOLATED else scale):.4g}") for name, value in constants.items()
    }


_FEWEST = 4  # with fewer operators, no device constant is fitted
_HOST_SHARE = 0.3  # of the device's time; steps with less host time are not used to fit the host


@dataclass(frozen=True, slots=True)
class FittedCalibration:
    """A calibration, and the rows that it was fitted to.

    ``operators`` is the fit to operators alone; ``launches`` counts the host constants from ``launch.csv``, ``clocks``
    the factors of the board's power from ``clocks.csv``;
    ``host_scale`` is the factor on host times from ``steps``, None if no step was used.
    """

    calibration: Calibration
    operators: CalibrationFactors | None
    rows: tuple[MeasuredRow, ...]
    launches: int = 0
    steps: tuple[MeasuredRow, ...] = ()
    host_scale: float | None = None
    clocks: int = 0

    @property
    def tables(self) -> tuple[str, ...]:
        """Tables that were fitted to as a whole, and have no prediction of their own."""
        return (CLOCKS,) if self.clocks else ()

    @property
    def points(self) -> int:
        """Number of rows, launch constants and factors of power fitted to."""
        return len(self.rows) + len(self.steps) + self.launches + self.clocks


class FolderDevice:
    """The device of a folder, fitted and predicting; raises InputError if *part* is empty or not in *names*."""

    def __init__(self, part: str, names: RowNames) -> None:
        if not part:
            raise InputError("which device to calibrate is not known: --topology FILE or --device NAME=PART says it")
        self.part = part
        self._bare = names.session.calibrated({})
        try:
            self._where = names.devices.where(part)
            self._has_host = isinstance(names.devices.described(part), GpuPart)  # a CPU is its own host
        except NotScored as reason:
            raise InputError(str(reason)) from None

    def fit(
        self, operators: Sequence[MeasuredRow], folder: Folder | None = None, steps: Sequence[MeasuredRow] = ()
    ) -> FittedCalibration:
        """Return a fit of the device and its host to *operators*, the launches of *folder* and *steps*.

        Raises InputError if there are too few rows to fit anything.
        """
        rows = [row for row in operators if row.counts]
        found: CalibrationFactors | None = None
        calibration = Calibration()
        if len(rows) >= _FEWEST:
            found = fit_calibration(self._bare, self.part, rows)
            calibration = found.calibration
        else:
            rows = []
        clocks: dict[str, float] = {}
        if folder is not None and self._has_host:
            clocks = clock_factors(folder, self._bare.calibrated({self.part: calibration}), *self._where)
        calibration = replace(calibration, clocks=clocks)
        seconds = host_seconds(folder) if folder is not None and self._has_host else {}
        known = replace(calibration, dispatch=1.0, host=scaled_constants(seconds, 1.0, calibration.dispatch))
        session = self._bare.calibrated({self.part: known})
        predicted = [(row, self._by_host(row, session)) for row in steps if row.counts]
        telling = [(row, predict) for row, predict in predicted if predict is not None]
        scale: float | None = None
        if telling:
            scale = scale_of_steps([(predict, row.measured_s or 0.0) for row, predict in telling])
        if not rows and not seconds and not clocks and scale is None:
            few = f"{len(operators)} operators, no launches, no clocks, no steps"
            raise InputError(f"too few rows to calibrate on: {few}")
        if seconds or scale is not None:
            host = scaled_constants(seconds, scale or 1.0, calibration.dispatch)
            calibration = replace(calibration, dispatch=1.0, host=host)
        used = tuple(row for row, _ in telling)
        return FittedCalibration(calibration, found, tuple(rows), len(seconds), used, scale, len(clocks))

    def again(self, rows: Sequence[MeasuredRow], calibration: Calibration) -> list[MeasuredRow]:
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

    def _by_host(self, row: MeasuredRow, session: Session) -> Callable[[float], float] | None:
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


# Columns on how a row was run: the same shape with a cold cache or on another machine is not a new question.
_HOW = frozenset(("device", "machine", "includes_dispatch", "cache", "threads", "schedule", "issue"))
_WHICH = frozenset((*_HOW, "phase", "dtype", "variant"))
_ENOUGH = 5  # fewest operators to fit to or split


@dataclass(frozen=True, slots=True)
class CalibrationErrors:
    """Errors before and after a calibration, on rows that it was not fitted to.

    ``fitted`` and ``judged`` name the two sets of rows; ``points`` is the number of rows fitted to.
    """

    fitted: str
    judged: str
    points: int
    before: ClassErrors
    after: ClassErrors


def question(row: MeasuredRow, without: Collection[str] = _HOW) -> str:
    """Return the digest of what *row* asks, ignoring the columns *without*."""
    return digest({"table": row.table} | {name: text for name, text in row.key if name not in without})


def judge_within(
    bench: FolderDevice, folder: Folder, rows: Sequence[MeasuredRow], share: float
) -> list[CalibrationErrors]:
    """Return the worth of calibrations fitted to *share* of the *rows* of *folder* and judged on the others."""
    operators = [row for row in rows if row.counts and row.kind == "operators"]
    steps = [row for row in rows if row.counts and row.kind == "training"]
    count = max(1, round(share * len(operators)))
    found = []
    fitted: FittedCalibration | None = None
    if len(operators) >= _ENOUGH:
        first, others = _split(operators, question, count)
        fitted = bench.fit(first)
        found.append(_judged(bench, fitted.calibration, others, "operators", "other operators", len(first)))
        first, others = _split(operators, lambda row: question(row, _WHICH), max(count, len(operators) // 2))
        first = _some(first, count)
        alone = bench.fit(first)
        shapes = "operators of shapes that it has not seen"
        found.append(_judged(bench, alone.calibration, others, "operators", shapes, len(first)))
        found += _other_operators(bench, operators, count)
    if steps and fitted is not None:
        found.append(_judged(bench, fitted.calibration, steps, "operators", "steps", len(fitted.rows)))
        known = bench.fit(fitted.rows, folder)
        if known.launches:
            found.append(_judged(bench, known.calibration, steps, "operators and launches", "steps", known.points))
        mine, theirs = _split(steps, lambda row: row.labels.get("model", ""), max(1, round(share * len(steps))))
        whole = bench.fit(fitted.rows, folder, mine)
        if whole.steps and theirs:
            words = "operators, launches and steps" if whole.launches else "operators and steps"
            networks = "steps of networks that it has not seen"
            found.append(_judged(bench, whole.calibration, theirs, words, networks, whole.points))
    return [item for item in found if item.after.scored]


def judge_by(
    bench: FolderDevice, fitted: FittedCalibration, short: Sequence[MeasuredRow], rows: Sequence[MeasuredRow]
) -> list[CalibrationErrors]:
    """Return the worth of *fitted* on *rows*; it is a calibration on the rows *short* of another folder."""
    asked = {question(row) for row in short}
    networks = {row.labels.get("model", "") for row in fitted.steps}
    shapes = {question(row, _WHICH) for row in short}
    new = [row for row in rows if row.counts and question(row) not in asked]
    operators = [row for row in new if row.kind == "operators"]
    steps = [row for row in new if row.kind == "training"]
    parts = [
        ("operators that it did not ask", operators),
        ("operators of shapes that it did not ask", [r for r in operators if question(r, _WHICH) not in shapes]),
        ("steps that it did not ask", steps),
        ("steps of networks that it did not ask", [r for r in steps if r.labels.get("model", "") not in networks]),
    ]
    counts = (len(fitted.rows), fitted.launches, fitted.clocks, len(fitted.steps))
    named = zip(counts, ("operators", "launches", "clocks", "steps"), strict=True)
    words = ", ".join(f"{count} {what}" for count, what in named if count) or "nothing"
    return [_judged(bench, fitted.calibration, part, words, judged, fitted.points) for judged, part in parts if part]


def _other_operators(bench: FolderDevice, operators: Sequence[MeasuredRow], count: int) -> list[CalibrationErrors]:
    """Return one judgement over all operators, each predicted with constants fitted to the others."""
    names = sorted({row.labels.get("op", "") for row in operators})
    before: list[MeasuredRow] = []
    after: list[MeasuredRow] = []
    for name in names:
        mine = [row for row in operators if row.labels.get("op", "") == name]
        others = [row for row in operators if row.labels.get("op", "") != name]
        if len(others) < _ENOUGH:
            continue
        before += mine
        after += bench.again(mine, bench.fit(_some(others, count)).calibration)
    if not after:
        return []
    judged = "each operator by a fit to the others"
    return [
        CalibrationErrors("operators", judged, min(count, len(operators)), class_errors(before), class_errors(after))
    ]


def _judged(
    bench: FolderDevice, calibration: Calibration, rows: Sequence[MeasuredRow], fitted: str, judged: str, points: int
) -> CalibrationErrors:
    return CalibrationErrors(fitted, judged, points, class_errors(rows), class_errors(bench.again(rows, calibration)))


def _split(
    rows: Sequence[MeasuredRow], key: Callable[[MeasuredRow], str], count: int
) -> tuple[list[MeasuredRow], list[MeasuredRow]]:
    """Split *rows* by *key*: return about *count* rows with at most half of the keys, and the rest."""
    keyed = [(digest({"key": key(row)}), row) for row in rows]
    ordered = sorted({name for name, _ in keyed})
    chosen: set[str] = set()
    taken = 0
    for name in ordered[: max(1, len(ordered) // 2)]:
        if taken >= count:
            break
        chosen.add(name)
        taken += sum(1 for other, _ in keyed if other == name)
    return [row for name, row in keyed if name in chosen], [row for name, row in keyed if name not in chosen]


def _some(rows: Sequence[MeasuredRow], count: int) -> list[MeasuredRow]:
    """Return the *count* rows with the lowest digests."""
    return sorted(rows, key=lambda row: (question(row), row.table, row.line))[:count]
