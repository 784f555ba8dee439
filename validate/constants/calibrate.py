"""Fit the calibration factors of one device to measured operators (:mod:`validate.constants.fit`); their YAML."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from operator import attrgetter
from statistics import fmean, median, stdev
from typing import Any

import yaml

from simulator.api import Session
from simulator.api.calibrations import kernel_classes, kernel_shapes, left_out_errors, sizes_of
from simulator.errors import InputError
from simulator.questions.calibration import MOST_MEASURED, Calibration, Neighbourhood, Shape
from simulator.questions.single import OperatorQuestion
from simulator.records import dataclass, field, lists_by_key, replace
from simulator.results import taken
from validate.constants.families import Prior, calibrating_rows, countable, device_rows
from validate.constants.fit import LeastSquares, least_errors
from validate.kinds.kind import MeasuredRow, RowQuestion, Rows
from validate.kinds.timing import between_events_s
from validate.tables.cells import NotScored
from validate.tables.names import RowNames
from validate.tables.statistics import line_ranges, sampled_digests, summarise
from validate.tables.table import Table

# Prior standard deviation of each factor's logarithm, from errors of the shared constants on devices left out.
# It is small for classes, so that an effect common to all classes goes to the rates.
_PRIOR = {"compute": 0.15, "bandwidth": 0.1, "dispatch": 0.3, "by_class": 0.1}
_BOUND = 3.0
# Fewest rows of a kernel class that calibrate it; a gain that is only rounding.
_FEWEST, _NO_GAIN = 3, 1e-9
_SUMS_SAME = 0.02  # sums of seconds whose logarithms differ by less are equally far from the measured one
# Standard errors of the mean gain that it must exceed; twice as many below _MANY rows, whose own spread is uncertain
# (Student's t for 2 and 3 degrees of freedom: 4.5 and 3.3).
_PROOF, _MANY = 2.0, 5


@dataclass(frozen=True, slots=True)
class FittedCalibration:
    """A calibration, each factor's relative standard deviation, the signed errors that remain, and what it fits.

    ``rows`` are operators.  Of a folder, ``launches`` counts the host constants from ``launch.csv``, ``clocks`` the
    factors of the board's power from ``clocks.csv``; ``host_scale`` is the factor on host times from ``steps``.
    """

    calibration: Calibration = Calibration()
    spread: Mapping[str, float] = field(default_factory=dict)
    errors: tuple[float, ...] = ()
    rows: tuple[MeasuredRow, ...] = ()
    launches: int = 0
    steps: tuple[MeasuredRow, ...] = ()
    host_scale: float | None = None
    clocks: int = 0

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of points by kind, but for operators."""
        found = {"launches": self.launches, "clocks": self.clocks, "steps": len(self.steps)}
        return {name: count for name, count in found.items() if count}


def fit_calibration(session: Session, part: str, rows: Rows) -> FittedCalibration:
    """Return *part*'s factors fitted to *rows*; raises InputError if none is predicted, MissingDependency."""
    bare = session.calibrated({})
    usable = []
    for row in rows:
        with suppress(NotScored):
            usable += [row] if row.asks.time_s(bare) > 0 else []
    if not usable:
        raise InputError(f"{part}: no row can be calibrated on")
    classes = frozenset(name for row in usable for name in kernel_classes(row.asks.question))
    kept: frozenset[str] = frozenset()
    calibration, spread = Calibration(), dict[str, float]()
    while kept < classes:  # drop classes that gain nothing until all others gain
        mine = [row for row in usable if kept.isdisjoint(kernel_classes(row.asks.question))]
        calibration, found = _fitted(session, part, usable, mine, kept)
        spread = spread or found.spread
        lost = _lost(bare, mine, found.unseen)
        if not lost:
            break
        kept |= lost
    else:
        calibration = Calibration()
    neighbours, unseen = fit_neighbours(bare, part, usable, calibration)
    trial = session.calibrated({part: calibration})
    errors = [row.asks.time_s(trial) / row.time_s - 1.0 for row in usable]
    left = tuple(unseen.get(i, error) for i, error in enumerate(errors))
    return FittedCalibration(replace(calibration, neighbours=neighbours), spread, left, tuple(rows))


def _fitted(
    session: Session, part: str, rows: Rows, mine: Rows, kept: frozenset[str]
) -> tuple[Calibration, LeastSquares]:
    """Return *part*'s factors fitted to *mine*, those of *rows* without classes *kept* at the data sheet's rates."""
    classes = {name for row in mine for name in kernel_classes(row.asks.question)}
    shows = [row for row in rows if _shows_host(row.asks)]
    kept_shows = any(not kept.isdisjoint(kernel_classes(row.asks.question)) for row in shows)
    dispatch = ["dispatch"] if not kept_shows and any(_shows_host(row.asks) for row in mine) else []
    names = ["compute", "bandwidth", *dispatch, *(f"by_class.{name}" for name in sorted(classes))]
    priors = {name: Prior(1.0, _PRIOR[name.partition(".")[0]], 1.0 / _BOUND, _BOUND) for name in names}
    own = []  # the factors that move each row: of kernel classes, those of the kernels that were timed with it
    for row in mine:
        asked = (row.asks.question, *row.asks.besides)
        theirs = {f"by_class.{kernel}" for each in asked for kernel in kernel_classes(each)}
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


_Seconds = tuple[float, float, float]  # of a row: by the data sheet, by other rows' factors, and measured


def _lost(session: Session, rows: Rows, unseen: Sequence[float]) -> frozenset[str]:
    """Return the kernel classes that gain nothing; *unseen* are log errors of *rows* by factors from the other rows."""
    judged: list[tuple[str, tuple[str, _Seconds]]] = []
    for row, error in zip(rows, unseen, strict=True):
        seconds = row.asks.time_s(session), row.time_s * math.exp(error), row.time_s
        judged += [(name, (row.op, seconds)) for name in kernel_classes(row.asks.question)]
    return frozenset(name for name, mine in lists_by_key(judged).items() if not _gains(mine))


def _gains(rows: Sequence[tuple[str, _Seconds]]) -> bool:
    """Return whether factors of other rows beat the data sheet by ``_PROOF`` standard errors, and no operator loses."""
    gains = [abs(before / measured - 1.0) - abs(after / measured - 1.0) for _, (before, after, measured) in rows]
    if len(gains) < _FEWEST:
        return False
    proof = _PROOF if len(gains) >= _MANY else 2.0 * _PROOF
    if fmean(gains) <= proof * stdev(gains) / math.sqrt(len(gains)) + _NO_GAIN:
        return False
    for mine in lists_by_key(rows).values():
        # the average of mean and median reflects both the typical row and the outliers
        errors = ([abs(each[by] / each[2] - 1.0) for each in mine] for by in (0, 1))
        plain, unseen = ((fmean(each) + median(each)) / 2.0 for each in errors)
        if unseen > plain + _NO_GAIN or _further(mine):
            return False
    return True


def _further(seconds: Sequence[_Seconds]) -> bool:
    """Return whether the sum of *seconds* is further from the measured one after calibration than before."""
    before, after, measured = (math.fsum(each) for each in zip(*seconds, strict=True))
    return abs(math.log(after / measured)) > abs(math.log(before / measured)) + _SUMS_SAME


def _calibration(values: Mapping[str, float]) -> Calibration:
    classes = {name.partition(".")[2]: value for name, value in values.items() if name.startswith("by_class.")}
    return Calibration(values["compute"], values["bandwidth"], values.get("dispatch", 1.0), classes)


def _shows_host(asked: RowQuestion) -> bool:
    of_host = asked.timing is not None and asked.timing.function is between_events_s
    return of_host or (isinstance(asked.question, OperatorQuestion) and asked.question.calls)


def calibrate_devices(
    table: Table, names: RowNames, trust: Sequence[str], count: int
) -> tuple[dict[str, Calibration], frozenset[str]]:
    """Return each device's calibration from *count* rows (at most half), and digests; raises MissingDependency."""
    calibrations, seen = dict[str, Calibration](), frozenset[str]()
    for part, rows in device_rows(table, names).items():
        usable = countable(rows, names.session, trust)
        taken = sampled_digests((row.digest for row in usable), count)
        if taken:
            calibrations[part] = fit_calibration(names.session, part, calibrating_rows(usable, taken)).calibration
            seen |= taken
    return calibrations, seen


def calibration_yaml(part: str, table: str, fitted: FittedCalibration) -> str:
    """Return the calibration file of *part*, *fitted* to rows of *table*."""
    factors, left = fitted.calibration, summarise(fitted.errors)
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
    errors = {"median_error": left.median_ape, "mean_error": left.mean_ape}
    device = {
        **taken(factors, "compute bandwidth dispatch"),
        "by_class": dict(sorted(factors.by_class.items())),
        **{name: value for name, value in some.items() if value},
        "spread": dict(fitted.spread),
        "points": {
            "table": table,
            "count": dict(sorted({**Counter(row.op for row in fitted.rows), **fitted.counts}.items())),
            **{name: round(error, 4) for name, error in errors.items() if error is not None},
            "lines": line_ranges(sorted(row.line for row in fitted.rows), limit=None),
            "asked": sorted({row.digest for row in (*fitted.rows, *fitted.steps)}),
        },
    }
    how: dict[str, Any] = {"sort_keys": False, "default_flow_style": None, "width": math.inf, "allow_unicode": True}
    text = yaml.safe_dump({"schema_version": 1, "devices": {part: device}}, **how)
    return f"# Written by validate calibrate; docs/calibration.md.\n{text}"


# Chosen on every other device, judged on the rest (docs/decisions/calibration.md).
NEAR, _STRENGTH, NOISE = (1.0, 2.0, 0.5), (1.0, 0.75, 0.5, 0.25), 0.1
_FEWEST_SHAPES = 3  # shapes of a variety
_NEAR_PROOF = 1.0  # standard errors of the mean gain that it must exceed
_CLIP = 0.4  # an error counts up to this logarithm: more is another algorithm or a disturbed row
_PROBE = 1.01  # the factor on a kernel's time that shows whether a row's time depends on it
_FOLLOWS = 0.5  # the least part of a change of the kernels' time that a row must show
_MOST_ERROR = 1.0


@dataclass(frozen=True, slots=True)
class _Point:
    """A row of one variety: its kernels' shape and seconds (at the power it shows), predicted and measured."""

    row: int
    shape: Shape
    kernels_s: float
    predicted_s: float
    measured_s: float

    @property
    def ratio(self) -> float:
        """Measured over predicted time of the kernels, with the rest of the row as predicted."""
        found = (self.kernels_s + self.measured_s - self.predicted_s) / self.kernels_s
        return float(f"{min(math.exp(_CLIP), max(math.exp(-_CLIP), found)):.4g}")

    def error(self, logarithm: float) -> float:
        """Return the signed relative error with kernels exp(*logarithm*) times as long."""
        return (self.predicted_s + self.kernels_s * math.expm1(logarithm)) / self.measured_s - 1.0


def fit_neighbours(
    session: Session, part: str, rows: Rows, factors: Calibration
) -> tuple[tuple[Neighbourhood, ...], dict[int, float]]:
    """Return the neighbourhoods of *part* that its measured *rows* show to help, beside the calibration *factors*.

    The signed error of each corrected row, when it is left out of them, is by the row's number (docs/calibration.md).
    """
    known, unseen = [], dict[int, float]()
    for variety, points in sorted(_points(session.calibrated({part: factors}), part, rows, factors).items()):
        found = _chosen(variety, points)
        if found is not None:
            known.append(found[0])
            unseen |= {point.row: error for point, error in zip(points, found[1], strict=True)}
    return tuple(known), unseen


def _points(session: Session, part: str, rows: Rows, factors: Calibration) -> dict[str, list[_Point]]:
    """Return the usable *rows* by variety: those of one variety whose time follows that of their kernels."""
    found: dict[str, list[_Point]] = {}
    for number, row in enumerate(rows):
        kernels = kernel_shapes(session, row.asks.question)
        kernels_s = math.fsum(time_s for _, _, time_s in kernels)
        if len({variety for variety, _, _ in kernels}) != 1 or kernels_s <= 0.0:
            continue
        variety, shape, _ = max(kernels, key=lambda each: each[2])
        everywhere = Neighbourhood(variety, 1e9, 1.0, 1e-3, ((shape, _PROBE),))
        slower = session.calibrated({part: replace(factors, neighbours=(everywhere,))})
        predicted_s = row.asks.time_s(session)
        if row.asks.time_s(slower) - predicted_s < _FOLLOWS * (_PROBE - 1.0) * kernels_s:
            continue
        # A measurement begins anywhere between rest, when a board exceeds its power for milliseconds, and a long run; a
        # time between these two is no error of the kernel.
        account, stated_s = session.account(row.asks.question), kernels_s
        shown_s = kernels_s + row.time_s - predicted_s
        if account.sustained_s > account.kernels_s and shown_s > 0.0:
            stated_s = min(max(shown_s, account.kernels_s), account.sustained_s)
        point = _Point(number, shape, stated_s, predicted_s + (stated_s - kernels_s), row.time_s)
        found.setdefault(variety, []).append(point)
    kept = {}
    for variety, points in found.items():  # in the order of shapes; of too many, those with the lowest hash of both
        some = sorted(points, key=lambda point: sha256(repr((point.shape, point.measured_s)).encode()).digest())
        kept[variety] = sorted(some[:MOST_MEASURED], key=attrgetter("shape", "measured_s", "predicted_s"))
    return kept


def _chosen(variety: str, points: Sequence[_Point]) -> tuple[Neighbourhood, list[float]] | None:
    """Return the best neighbourhood of *points* and each row's error without it, or None if no gain is proved."""

    def size(error: float) -> float:
        return min(_MOST_ERROR, abs(error))

    if len({point.shape for point in points}) < _FEWEST_SHAPES:
        return None
    plain = [size(point.error(0.0)) for point in points]
    most, best = 0.0, None
    measured = tuple((point.shape, point.ratio) for point in points)
    for near in NEAR:
        others = left_out_errors(Neighbourhood(variety, near, 1.0, NOISE, measured))
        for strength in _STRENGTH:
            errors = [point.error(strength * value) for point, value in zip(points, others, strict=True)]
            gains = [before - size(error) for before, error in zip(plain, errors, strict=True)]
            if any(_further(each) for each in _sums(points, errors)):
                continue
            by_mean = fmean(gains) - _NEAR_PROOF * stdev(gains) / math.sqrt(len(gains))
            proved = min(by_mean, median(plain) - median(map(size, errors)))
            if proved > most:
                most, best = proved, (Neighbourhood(variety, near, strength, NOISE, measured), errors)
    return best


def _sums(points: Sequence[_Point], errors: Sequence[float]) -> Iterator[list[_Seconds]]:
    """Yield the seconds of *points* before and after correction, and measured, by the words of their shapes."""
    words = (tuple(value for value in point.shape if isinstance(value, str)) for point in points)
    pairs = zip(points, errors, strict=True)
    seconds = ((point.predicted_s, point.measured_s * (1.0 + error), point.measured_s) for point, error in pairs)
    yield from (each for each in lists_by_key(zip(words, seconds, strict=True)).values() if len(each) >= _FEWEST_SHAPES)
