"""Fit the calibration factors of one device to measured operators (:mod:`validate.constants.least`); their YAML."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from statistics import fmean, median, stdev
from typing import Any, NamedTuple

import yaml

from simulator.api import Session
from simulator.api.calibrations import sizes_of
from simulator.errors import InputError
from simulator.questions.calibration import Calibration
from simulator.questions.single import OperatorQuestion
from simulator.records import dataclass, replace
from simulator.results import taken
from validate.constants.least import LeastSquares, Prior, least_errors
from validate.constants.neighbours import fit_neighbours
from validate.kinds.kind import RowQuestion
from validate.kinds.row import MeasuredRow
from validate.kinds.timing import BetweenEvents
from validate.tables.cells import NotScored
from validate.tables.statistics import line_ranges, summarise

# Prior standard deviation of each factor's logarithm, from errors of the shared constants on devices left out.
# It is small for classes, so that an effect common to all classes goes to the rates.
_PRIOR = {"compute": 0.15, "bandwidth": 0.1, "dispatch": 0.3, "by_class": 0.1}
_BOUND = 3.0
# Fewest rows of a kernel class that calibrate it; a gain that is only rounding.
_FEWEST, _NO_GAIN = 3, 1e-9
# Standard errors of the mean gain that it must exceed; twice as many below _MANY rows, whose own spread is uncertain
# (Student's t for 2 and 3 degrees of freedom: 4.5 and 3.3).
_PROOF, _MANY = 2.0, 5


@dataclass(frozen=True, slots=True)
class CalibrationFactors:
    """Calibration factors, the relative standard deviation of each, and the signed errors that remain, by row.

    Kernel classes whose predictions do not improve keep the data sheet's rates.
    """

    calibration: Calibration
    spread: dict[str, float]
    errors: tuple[float, ...]


def fit_calibration(session: Session, part: str, rows: Sequence[MeasuredRow]) -> CalibrationFactors:
    """Return *part*'s factors fitted to *rows*; raises InputError if none is predicted, MissingDependency."""
    bare = session.calibrated({})
    usable = []
    for row in rows:
        with suppress(NotScored):
            usable += [row] if row.asks.time_s(bare) > 0 else []
    if not usable:
        raise InputError(f"{part}: no row can be calibrated on")
    classes = frozenset(name for row in usable for name in bare.kernel_classes(row.asks.question))
    kept: frozenset[str] = frozenset()
    calibration, spread = Calibration(), dict[str, float]()
    while kept < classes:  # drop classes that gain nothing until all others gain
        calibration, found = _fitted(session, part, usable, kept)
        spread = spread or found.spread
        lost = _lost(bare, _without(bare, usable, kept), found.unseen)
        if not lost:
            break
        kept |= lost
    else:
        calibration = Calibration()
    corrected = fit_neighbours(bare, part, usable, calibration)
    trial = session.calibrated({part: calibration})
    errors = [row.asks.time_s(trial) / row.time_s - 1.0 for row in usable]
    calibration = replace(calibration, neighbours=corrected.neighbours)
    return CalibrationFactors(
        calibration, spread, tuple(corrected.unseen.get(i, error) for i, error in enumerate(errors))
    )


def _without(session: Session, rows: Sequence[MeasuredRow], kept: frozenset[str]) -> list[MeasuredRow]:
    """Return the *rows* without kernels of the classes *kept* at the data sheet's rates."""
    return [row for row in rows if kept.isdisjoint(session.kernel_classes(row.asks.question))]


def _fitted(
    session: Session, part: str, rows: Sequence[MeasuredRow], kept: frozenset[str]
) -> tuple[Calibration, LeastSquares]:
    """Return *part*'s factors fitted without classes *kept*; dispatch, one for all, only if none kept includes it."""
    bare = session.calibrated({})
    mine = _without(bare, rows, kept)
    classes = {name for row in mine for name in bare.kernel_classes(row.asks.question)}
    shows = [row for row in rows if _shows_host(row.asks)]
    kept_shows = any(not kept.isdisjoint(bare.kernel_classes(row.asks.question)) for row in shows)
    dispatch = ["dispatch"] if not kept_shows and any(_shows_host(row.asks) for row in mine) else []
    names = ["compute", "bandwidth", *dispatch, *(f"by_class.{name}" for name in sorted(classes))]
    priors = {name: Prior(1.0, _PRIOR[name.partition(".")[0]], 1.0 / _BOUND, _BOUND) for name in names}
    own = []  # the factors that move each row: of kernel classes, those of the kernels that were timed with it
    for row in mine:
        asked = (row.asks.question, *row.asks.besides)
        theirs = {f"by_class.{kernel}" for each in asked for kernel in bare.kernel_classes(each)}
        own.append([name for name in names if not name.startswith("by_class.") or name in theirs])
    known: list[dict[tuple[float, ...], float]] = [{} for _ in mine]

    def errors(values: Mapping[str, float]) -> list[float]:
        """Ask again only rows with a factor of their own that moved: a slope moves one factor."""
        trial = session.calibrated({part: _calibration(values)})
        found = []
        for row, free, answers in zip(mine, own, known, strict=True):
            factors = tuple(values[name] for name in free)
            if factors not in answers:
                answers[factors] = math.log(row.asks.time_s(trial) / row.time_s)
            found.append(answers[factors])
        return found

    found = least_errors(priors, errors, [row.op for row in mine], unseen=True)
    values = {name: float(f"{value:.4g}") for name, value in found.values.items()}
    return replace(_calibration(values), by_data_sheet=tuple(sorted(kept))), found


class _Judged(NamedTuple):
    """A row's absolute error by the data sheet (``plain``) and by factors from the other rows (``unseen``)."""

    op: str
    classes: Collection[str]
    plain: float
    unseen: float


def _lost(session: Session, rows: Sequence[MeasuredRow], unseen: Sequence[float]) -> frozenset[str]:
    """Return the kernel classes that gain nothing; *unseen* are log errors of *rows* by factors from the other rows."""
    judged = []
    for row, error in zip(rows, unseen, strict=True):
        plain = abs(row.asks.time_s(session) / row.time_s - 1.0)
        classes = session.kernel_classes(row.asks.question)
        judged.append(_Judged(row.op, classes, plain, abs(math.expm1(error))))
    every = {name for row in judged for name in row.classes}
    return frozenset(name for name in every if not _gains([row for row in judged if name in row.classes]))


def _gains(rows: Sequence[_Judged]) -> bool:
    """Return whether factors of other rows beat the data sheet by ``_PROOF`` standard errors, and no operator loses."""
    gains = [row.plain - row.unseen for row in rows]
    if len(gains) < _FEWEST:
        return False
    proof = _PROOF if len(gains) >= _MANY else 2.0 * _PROOF
    if fmean(gains) <= proof * stdev(gains) / math.sqrt(len(gains)) + _NO_GAIN:
        return False
    for op in {row.op for row in rows}:
        # the average of mean and median reflects both the typical row and the outliers
        errors = [(row.unseen, row.plain) for row in rows if row.op == op]
        unseen, plain = ((fmean(each) + median(each)) / 2.0 for each in zip(*errors, strict=True))
        if unseen > plain + _NO_GAIN:
            return False
    return True


def _calibration(values: Mapping[str, float]) -> Calibration:
    classes = {name.partition(".")[2]: value for name, value in values.items() if name.startswith("by_class.")}
    return Calibration(values["compute"], values["bandwidth"], values.get("dispatch", 1.0), classes)


def _shows_host(asked: RowQuestion) -> bool:
    """Return whether the measured time of *asked* includes host time."""
    return isinstance(asked.timing, BetweenEvents) or (
        isinstance(asked.question, OperatorQuestion) and asked.question.calls
    )


def calibration_yaml(
    part: str,
    table: str,
    rows: Sequence[MeasuredRow],
    fitted: CalibrationFactors,
    *,
    others: Mapping[str, int] | None = None,
    asked: Iterable[str] = (),
) -> str:
    """Return the calibration file of the device *part*: the *fitted* factors and the *rows* of *table* fitted to.

    *others* counts other rows fitted to, by kind; *asked* are the digests of their questions.
    """
    factors, left = fitted.calibration, summarise(fitted.errors)
    assert left.median_ape is not None
    assert left.mean_ape is not None
    neighbours = []  # measured kernels, a whole number without a point
    for each in factors.neighbours:
        kernels = [{**sizes_of(each.of, shape), "ratio": ratio} for shape, ratio in each.measured]
        measured = [
            {name: int(n) if isinstance(n, float) and n.is_integer() else n for name, n in of.items()} for of in kernels
        ]
        neighbours.append({**taken(each, "of near strength noise"), "measured": measured})
    some = {
        "by_data_sheet": sorted(factors.by_data_sheet),
        "host": dict(factors.host),
        "clocks": dict(factors.clocks),
        "neighbours": neighbours,
    }
    device = {
        **taken(factors, "compute bandwidth dispatch"),
        "by_class": dict(sorted(factors.by_class.items())),
        **{name: value for name, value in some.items() if value},
        "spread": fitted.spread,
        "points": {
            "table": table,
            "count": dict(sorted({**Counter(row.op for row in rows), **(others or {})}.items())),
            "median_error": round(left.median_ape, 4),
            "mean_error": round(left.mean_ape, 4),
            "lines": line_ranges(sorted(row.line for row in rows), limit=None),
            "asked": sorted({*(row.digest for row in rows), *asked}),
        },
    }
    how: dict[str, Any] = {"sort_keys": False, "default_flow_style": None, "width": math.inf, "allow_unicode": True}
    text = yaml.safe_dump({"schema_version": 1, "devices": {part: device}}, **how)
    return f"# Written by validate calibrate; docs/calibration.md.\n{text}"
