"""Measured kernels that correct their neighbours, chosen by leave-one-out: :func:`fit_neighbours`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import sha256
from statistics import fmean, median, stdev

from simulator.api import Session
from simulator.api.calibrations import left_out_errors
from simulator.questions.calibration import MOST_MEASURED, Calibration, Neighbourhood, Shape
from simulator.records import dataclass, replace
from validate.kinds.row import MeasuredRow

# Chosen on every other device, judged on the rest (docs/decisions/calibration.md).
NEAR, _STRENGTH, NOISE = (1.0, 2.0, 0.5), (1.0, 0.75, 0.5, 0.25), 0.1
_FEWEST = 3  # shapes of a variety
_PROOF = 1.0  # standard errors of the mean gain that it must exceed
_CLIP = 0.4  # an error counts up to this logarithm: more is another algorithm or a disturbed row
_PROBE = 1.01  # the factor on a kernel's time that shows whether a row's time depends on it
_FOLLOWS = 0.5  # the least part of a change of the kernels' time that a row must show
_MOST_ERROR = 1.0


@dataclass(frozen=True, slots=True)
class NeighbourErrors:
    """Neighbourhoods, and the signed error of each corrected row, by its number, when it is left out of them."""

    neighbours: tuple[Neighbourhood, ...]
    unseen: dict[int, float]


@dataclass(frozen=True, slots=True)
class _Point:
    """A row of one variety: its number, the shape and the seconds of its kernels, predicted and measured seconds.

    Of kernels that power limits, the prediction is that of the power which the row shows.
    """

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


def fit_neighbours(session: Session, part: str, rows: Sequence[MeasuredRow], factors: Calibration) -> NeighbourErrors:
    """Return the neighbourhoods of *part* that its measured *rows* show to help, beside the calibration *factors*.

    For each variety of kernels, each row is predicted from the others with every distance and strength.  The best pair
    is taken if its mean gain exceeds the gain's standard error and the median error does not grow; otherwise the
    variety has no neighbours.
    """
    known, unseen = [], dict[int, float]()
    for variety, points in sorted(_points(session.calibrated({part: factors}), part, rows, factors).items()):
        found = _chosen(variety, points)
        if found is not None:
            known.append(found[0])
            unseen |= {point.row: error for point, error in zip(points, found[1], strict=True)}
    return NeighbourErrors(tuple(known), unseen)


def _points(session: Session, part: str, rows: Sequence[MeasuredRow], factors: Calibration) -> dict[str, list[_Point]]:
    """Return the usable *rows* by variety: those of one variety whose time follows that of their kernels."""
    found: dict[str, list[_Point]] = {}
    for number, row in enumerate(rows):
        kernels = session.kernel_shapes(row.asks.question)
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
    return {variety: _kept(points) for variety, points in found.items()}


def _kept(points: Sequence[_Point]) -> list[_Point]:
    """Return *points* in the order of their shapes; of too many, those with the lowest hash of what was measured."""
    some = sorted(points, key=lambda point: sha256(repr((point.shape, point.measured_s)).encode()).digest())
    return sorted(some[:MOST_MEASURED], key=lambda point: (point.shape, point.measured_s, point.predicted_s))


def _chosen(variety: str, points: Sequence[_Point]) -> tuple[Neighbourhood, list[float]] | None:
    """Return the best neighbourhood of *points* and each row's error without it, or None if no gain is proved."""
    if len({point.shape for point in points}) < _FEWEST:
        return None
    plain = [_size(point.error(0.0)) for point in points]
    best: tuple[float, Neighbourhood, list[float]] | None = None
    measured = tuple((point.shape, point.ratio) for point in points)
    for near in NEAR:
        others = left_out_errors(Neighbourhood(variety, near, 1.0, NOISE, measured))
        for strength in _STRENGTH:
            errors = [point.error(strength * value) for point, value in zip(points, others, strict=True)]
            gains = [before - _size(error) for before, error in zip(plain, errors, strict=True)]
            proved = min(
                fmean(gains) - _PROOF * stdev(gains) / math.sqrt(len(gains)), median(plain) - median(map(_size, errors))
            )
            if proved > (0.0 if best is None else best[0]):
                best = proved, Neighbourhood(variety, near, strength, NOISE, measured), errors
    return None if best is None else best[1:]


def _size(error: float) -> float:
    return min(_MOST_ERROR, abs(error))
