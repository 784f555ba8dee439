"""Calibrate a device and its host on what a folder holds, and judge what that is worth on rows that it has not seen."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from statistics import median
from typing import Any

from simulator.api import Session
from simulator.api.calibrations import host_constants
from simulator.constants import DEFAULT
from simulator.errors import InputError, TopocastError
from simulator.questions.calibration import ISOLATED, Calibration
from simulator.questions.single import OperatorQuestion
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.records import dataclass, replace
from simulator.topology.parts import GpuPart
from simulator.workload.operators import MatMul
from validate.compare.classes import ClassErrors, class_errors
from validate.compare.folder import COLUMNS, Folder
from validate.constants.calibrate import FittedCalibration, fit_calibration
from validate.kinds.kind import MeasuredRow, Rows
from validate.kinds.timing import TimingCosts
from validate.tables.cells import NotScored, figure
from validate.tables.names import RowNames
from validate.tables.statistics import digest

CLOCKS = "clocks.csv"
_LEAST, _MOST = 0.1, 10.0  # of the power that the model gives
_SAME = 1.02  # times that differ by less are the same
_BISECTIONS = 40


def clock_factors(folder: Folder, session: Session, where: Where, part: str) -> dict[str, float]:
    """Return what ``clocks.csv`` of *folder* says of *part* in *session*, by names of ``CLOCKS``; empty without it.

    Its rows are seconds of a call in a long run (``time_s``) and after rest (``burst_s``), whose ratio is ``burst``;
    ``side`` is that of a product, ``repeats`` the streams in turn with each.  ``power`` makes the model's product take
    as long as the measured one (docs/calibration.md).  ``stream`` is w in p' = p - (1 - w) s: a product of p alone
    takes p' in turn with streams of s seconds (:mod:`simulator.step.issue`).
    """
    works: dict[str, tuple[float, float, int, int, str]] = {}
    for cell, time_s in folder.known_times(CLOCKS):
        burst_s, *counts = (figure(cell(name)) or 0.0 for name in ("burst_s", "side", "repeats"))
        works[cell("work")] = time_s, burst_s, int(counts[0]), int(counts[1]), cell("dtype") or "fp16"
    nothing = (0.0, 0.0, 0, 0, "")
    long_s, burst_s, side, _, dtype = works.get("product", nothing)
    found: dict[str, float] = {}
    if not side:
        return found
    asked = OperatorQuestion(
        where=where, device=part, operator=MatMul(side, side, side), precision="bf16" if dtype == "bf16" else "fp16"
    )
    known = session.calibrations.get(part, Calibration())

    def time_s_at(power: float) -> float:
        held = replace(known, clocks={**known.clocks, "power": power})
        return session.calibrated({part: held}).account(asked).sustained_s

    fastest_s = time_s_at(_MOST)
    is_bound = long_s >= fastest_s * _SAME
    low, high = _LEAST, _MOST  # of the least power that suffices, by bisection of its logarithm
    for _ in range(_BISECTIONS):
        middle = (low * high) ** 0.5
        suffices = time_s_at(middle) <= (long_s if is_bound else fastest_s * _SAME)
        low, high = (low, middle) if suffices else (middle, high)
    found["power"] = high if is_bound else max(1.0, high)
    if burst_s > 0.0:
        found["burst"] = max(1.0, long_s / burst_s)
    mixed_s, _, mixed_side, repeats, _ = works.get("mixture", nothing)
    if "stream" in works and mixed_side == side and repeats:
        streams_s = repeats * works["stream"][0]
        found["stream"] = min(1.0, max(_LEAST, 1.0 - (long_s - (mixed_s - streams_s)) / streams_s))
    return {name: float(f"{value:.4g}") for name, value in found.items()}


_HOST: Mapping[str, Any] = COLUMNS["host"]
_PLAIN, _BESIDES = _HOST["plain"], _HOST["besides"]
_TWO = 2  # parameters of a layer norm


def host_seconds(folder: Folder) -> dict[str, float]:
    """Return the dispatch constants measured in ``launch.csv`` of *folder*, in seconds; empty if there are none."""
    times: dict[str, float] = {}
    for cell, time_s in folder.known_times("launch.csv"):
        times.setdefault(cell("metric"), time_s)
    forward, whole = (
        {name: times.get(f"host time of {name}, forward{passes}", 0.0) for name in (*_PLAIN, *_BESIDES)}
        for passes in (", recorded", " and backward")
    )
    found: dict[str, float] = {}
    plain = [forward[name] for name in _PLAIN if forward[name] > 0]
    if plain:
        found["forward_s"] = median(plain)
        beyond = {constant: forward[name] for name, constant in _BESIDES.items() if forward[name] > 0}
        found |= {constant: max(0.0, time_s - found["forward_s"]) for constant, time_s in beyond.items()}
    bare = [whole[name] - forward[name] for name in _PLAIN[:-1] if whole[name] > forward[name] > 0]
    if bare:
        found["backward_s"] = median(bare)
        norm_s = whole["layer_norm"] - forward["layer_norm"]
        if norm_s > 0:
            found["gradient_s"] = max(0.0, (norm_s - found["backward_s"]) / _TWO)
    for metric, (constant, parts) in _HOST["metrics"].items():
        if times.get(metric, 0.0) > 0:
            found[constant] = times[metric] / parts
    return found


# Standard deviations of logarithms: of a host's speed before any step is measured, and of a well predicted step time.
_PRIOR, _SCATTER = 0.5, 0.05
_FURTHEST = math.log(8.0)
_FINE = 1e-3  # precision of the scale's logarithm


def scale_of_steps(steps: Sequence[tuple[Callable[[float], float], float]]) -> float:
    """Return the factor on host times that best fits *steps* (prediction by scale, measured s), by a soft L1 loss."""

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


_FEWEST = 4  # with fewer operators, no device constant is fitted
_HOST_SHARE = 0.3  # of the device's time; steps with less host time are not used to fit the host


@dataclass(frozen=True, slots=True)
class CalibrationErrors:
    """Errors before and after a calibration on ``points`` rows called ``fitted``, on the other rows ``judged``."""

    fitted: str
    judged: str
    points: int
    before: ClassErrors
    after: ClassErrors


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

    def fit(self, operators: Rows, folder: Folder | None = None, steps: Rows = ()) -> FittedCalibration:
        """Return a fit to *operators*, launches of *folder* and *steps*; raises InputError for too few rows."""
        rows = [row for row in operators if row.counts]
        rows = rows if len(rows) >= _FEWEST else []
        found = fit_calibration(self._bare, self.part, rows) if rows else FittedCalibration()
        calibration = found.calibration
        clocks, seconds = dict[str, float](), dict[str, float]()
        if folder is not None and self._has_host:
            clocks = clock_factors(folder, self._bare.calibrated({self.part: calibration}), *self._where)
            seconds = host_seconds(folder)
        calibration = replace(calibration, clocks=clocks)

        def host_of(scale: float) -> Calibration:
            """Return the calibration with all dispatch constants times *scale*; isolated calls' times the dispatch."""
            isolated = {name: getattr(DEFAULT(TimingCosts), name) for name in ISOLATED}
            host = {
                name: float(f"{value * (calibration.dispatch if name in ISOLATED else scale):.4g}")
                for name, value in {**host_constants(), **isolated, **seconds}.items()
            }
            return replace(calibration, dispatch=1.0, host=host)

        session = self._bare.calibrated({self.part: host_of(1.0)})
        predicted = [(row, self._by_host(row, session)) for row in steps if row.counts]
        telling = [(row, predict) for row, predict in predicted if predict is not None]
        scale = scale_of_steps([(predict, row.measured_s or 0.0) for row, predict in telling]) if telling else None
        if not rows and not seconds and not clocks and scale is None:
            few = f"{len(operators)} operators, no launches, no clocks, no steps"
            raise InputError(f"too few rows to calibrate on: {few}")
        if seconds or scale is not None:
            calibration = host_of(scale or 1.0)
        found = replace(found, launches=len(seconds), clocks=len(clocks), steps=tuple(row for row, _ in telling))
        return replace(found, calibration=calibration, host_scale=scale)

    def again(self, rows: Rows, calibration: Calibration) -> list[MeasuredRow]:
        """Return *rows* (operators and steps) predicted with *calibration*, without those it cannot predict."""
        session = self._bare.calibrated({self.part: calibration})
        found = []
        for row in rows:
            if row.asked is not None:
                with suppress(NotScored):
                    found.append(replace(row, predicted_s=row.asked.time_s(session)))
        return found

    def judged(self, fitted: FittedCalibration, rows: Rows, words: str, judged: str) -> CalibrationErrors:
        """Return the errors on *rows*, called *judged*, of *fitted*, to rows called *words*."""
        after = class_errors(self.again(rows, fitted.calibration))
        points = len(fitted.rows) + sum(fitted.counts.values())
        return CalibrationErrors(words, judged, points, class_errors(rows), after)

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


_HOW = frozenset(COLUMNS["how"])
_ENOUGH = 5  # fewest operators to fit to or split


def question(row: MeasuredRow, without: Collection[str] = _HOW) -> str:
    """Return the digest of what *row* asks, ignoring the columns *without*."""
    return digest({"table": row.table} | {name: text for name, text in row.key if name not in without})


_shape = partial(question, without=_HOW.union(COLUMNS["which"]))


def _model(row: MeasuredRow) -> str:
    return row.labels.get("model", "")


def judge_within(bench: FolderDevice, folder: Folder, rows: Rows, share: float) -> list[CalibrationErrors]:
    """Return the worth of calibrations fitted to *share* of the *rows* of *folder* and judged on the others."""
    operators, steps = ([row for row in rows if row.counts and row.kind == kind] for kind in ("operators", "training"))
    if len(operators) < _ENOUGH:
        return []
    count = max(1, round(share * len(operators)))
    first, others = _split(operators, question, count)
    fitted = bench.fit(first)
    found = [bench.judged(fitted, others, "operators", "other operators")]
    first, others = _split(operators, _shape, max(count, len(operators) // 2))
    first = _some(first, count)
    found.append(bench.judged(bench.fit(first), others, "operators", "operators of shapes that it has not seen"))
    found += _other_operators(bench, operators, count)
    if steps:
        found.append(bench.judged(fitted, steps, "operators", "steps"))
        known = bench.fit(fitted.rows, folder)
        if known.launches:
            found.append(bench.judged(known, steps, "operators and launches", "steps"))
        mine, theirs = _split(steps, _model, max(1, round(share * len(steps))))
        whole = bench.fit(fitted.rows, folder, mine)
        if whole.steps and theirs:
            words = "operators, launches and steps" if whole.launches else "operators and steps"
            found.append(bench.judged(whole, theirs, words, "steps of networks that it has not seen"))
    return [item for item in found if item.after.scored]


def _other_operators(bench: FolderDevice, operators: Rows, count: int) -> list[CalibrationErrors]:
    """Return one judgement over all operators, each predicted with constants fitted to the others."""
    before: list[MeasuredRow] = []
    after: list[MeasuredRow] = []
    for op in sorted({row.op for row in operators}):
        mine, others = [row for row in operators if row.op == op], [row for row in operators if row.op != op]
        if len(others) >= _ENOUGH:
            before += mine
            after += bench.again(mine, bench.fit(_some(others, count)).calibration)
    told = "operators", "each operator by a fit to the others", min(count, len(operators))
    return [CalibrationErrors(*told, class_errors(before), class_errors(after))] if after else []


def judge_by(bench: FolderDevice, fitted: FittedCalibration, short: Rows, rows: Rows) -> list[CalibrationErrors]:
    """Return the worth of *fitted* on *rows*; it is a calibration on the rows *short* of another folder."""
    asked, shapes, networks = set(map(question, short)), set(map(_shape, short)), set(map(_model, fitted.steps))
    new = [row for row in rows if row.counts and question(row) not in asked]
    operators, steps = ([row for row in new if row.kind == kind] for kind in ("operators", "training"))
    parts = {
        "operators that it did not ask": operators,
        "operators of shapes that it did not ask": [row for row in operators if _shape(row) not in shapes],
        "steps that it did not ask": steps,
        "steps of networks that it did not ask": [row for row in steps if _model(row) not in networks],
    }
    counts = {"operators": len(fitted.rows), **fitted.counts}
    words = ", ".join(f"{count} {what}" for what, count in counts.items() if count) or "nothing"
    return [bench.judged(fitted, part, words, judged) for judged, part in parts.items() if part]


def _split(rows: Rows, key: Callable[[MeasuredRow], str], count: int) -> tuple[list[MeasuredRow], list[MeasuredRow]]:
    """Split *rows* by *key*: return about *count* rows with at most half of the keys, and the rest."""
    keyed = [(digest({"key": key(row)}), row) for row in rows]
    ordered = sorted({name for name, _ in keyed})
    chosen: set[str] = set()
    for name in ordered[: max(1, len(ordered) // 2)]:
        if sum(other in chosen for other, _ in keyed) >= count:
            break
        chosen.add(name)
    return [row for name, row in keyed if name in chosen], [row for name, row in keyed if name not in chosen]


def _some(rows: Rows, count: int) -> list[MeasuredRow]:
    return sorted(rows, key=lambda row: (question(row), row.table, row.line))[:count]
