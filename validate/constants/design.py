"""Which operators to measure: those whose times narrow most what is not known of all (:func:`chosen`).

Errors of kernels are modelled as in calibration (:mod:`simulator.devices.neighbours`): those of one variety have a part
in common and a part with the correlation exp(-d / near).  Each measurement is taken where it reduces the mean
variance of the weighted targets most, given those before it (Cohn, Ghahramani and Jordan, *Active learning with
statistical models*, 1996, section 4).  No measured time is read.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence
from typing import Any

from simulator.api.calibrations import places_of
from simulator.errors import MissingDependency
from simulator.questions.calibration import Shape
from simulator.records import dataclass
from validate.constants.neighbours import NEAR, NOISE

_COMMON = 0.3  # chosen: the share of the variance that kernels of a variety have in common


@dataclass(frozen=True, slots=True)
class MeasurableOperator:
    """An operator: its main kernel's variety and shape, what it weighs as a target, and whether it can be measured."""

    key: Hashable
    variety: str
    shape: Shape
    weight: float = 1.0
    measurable: bool = True


def chosen(candidates: Sequence[MeasurableOperator], count: int) -> list[MeasurableOperator]:
    """Return the *count* of *candidates* that narrow the most, in the order in which each narrows most.

    Raises MissingDependency where NumPy is not installed.
    """
    by_variety: dict[str, list[MeasurableOperator]] = {}
    for each in candidates:
        by_variety.setdefault(each.variety, []).append(each)
    fields = [_Field(mine) for _, mine in sorted(by_variety.items())]
    waiting = [(-field.gain, i) for i, field in enumerate(fields) if field.gain > 0.0]
    heapq.heapify(waiting)
    found: list[MeasurableOperator] = []
    while waiting and len(found) < count:
        _, i = heapq.heappop(waiting)
        found.append(fields[i].take())
        if fields[i].gain > 0.0:
            heapq.heappush(waiting, (-fields[i].gain, i))
    return found


class _Field:
    """The candidates of one variety: the covariance of their errors given what was taken, and the best of the rest."""

    def __init__(self, candidates: Sequence[MeasurableOperator]) -> None:
        try:
            import numpy as np
        except ImportError:
            raise MissingDependency("choosing operators needs NumPy; in the clone: pip install -e '.[fit]'") from None
        self._np: Any = np
        self._all = sorted(candidates, key=lambda each: (each.shape, str(each.key)))
        places = places_of(self._all[0].variety, [each.shape for each in self._all])
        squares: Any = 0.0
        for axis in zip(*(place for place, _ in places), strict=True):
            squares = squares + (np.array(axis)[:, None] - np.array(axis)) ** 2
        for axis in zip(*(words for _, words in places), strict=True):
            words = np.array([word for _, word in axis])
            squares = squares + axis[0][0] ** 2 * (words[:, None] != words)
        self._covariance = _COMMON + (1.0 - _COMMON) * np.exp(-np.sqrt(squares) / NEAR[0])
        self._weight = np.array([each.weight for each in self._all])
        self._left = np.array([each.measurable for each in self._all])
        self._next()

    def _next(self) -> None:
        gains = (self._weight @ self._covariance**2) / (self._covariance.diagonal() + NOISE)
        gains = self._np.where(self._left, gains, 0.0)
        self._best = int(self._np.argmax(gains))
        self.gain = float(gains[self._best])

    def take(self) -> MeasurableOperator:
        """Return the best candidate, and find the next best."""
        i = self._best
        column = self._covariance[:, i].copy()
        self._covariance -= self._np.outer(column, column) / (column[i] + NOISE)
        self._left[i] = False
        self._next()
        return self._all[i]
