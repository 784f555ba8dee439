"""Linearised fits: one table of slopes serves all leave-one-out fits.

A time is a sum of parts that grow or shrink with the constants, so near the constants in use its logarithm is almost
linear in theirs.  The slopes are computed once, with one prediction of all rows per constant; after that a fit needs no
predictions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from validate.constants.least import Found, Prior, least_errors
from validate.kinds.row import MeasuredRow

_STEP = 0.02  # step of a constant's logarithm: above rounding errors, below the moves of fits


@dataclass(frozen=True, slots=True)
class Lines:
    """Linearised errors of rows: ``errors`` are log(predicted / measured) at the constants ``at``.

    ``slopes`` holds by constant the derivative of each row's error by the constant's logarithm.
    """

    rows: tuple[MeasuredRow, ...]
    at: dict[str, float]
    errors: tuple[float, ...]
    slopes: dict[str, tuple[float, ...]]


def draw_lines(
    rows: Sequence[MeasuredRow], at: Mapping[str, float], log_errors: Callable[[Mapping[str, float]], Sequence[float]]
) -> Lines:
    """Return *rows* linearised at the constants *at*; *log_errors* returns all errors for constants by name."""
    errors = tuple(log_errors(at))
    slopes = {}
    for name, value in at.items():
        moved = log_errors({**at, name: value * math.exp(_STEP)})
        slopes[name] = tuple((new - old) / _STEP for new, old in zip(moved, errors, strict=True))
    return Lines(tuple(rows), dict(at), errors, slopes)


def fit_along(lines: Lines, free: Mapping[str, Prior], kept: Collection[int], weights: Sequence[float]) -> Found:
    """Return the constants *free* that minimise the linearised errors of the rows with the indices *kept*.

    *weights* are those of the kept rows, in rising order of indices.

    Raises MissingDependency if SciPy is not installed.
    """
    numbers = sorted(kept)
    table: Any = None

    def log_errors(values: Mapping[str, float]) -> Sequence[float]:
        nonlocal table
        import numpy as np  # imported here, so that least_errors reports a missing SciPy

        if table is None:
            table = np.array([lines.errors, *(lines.slopes[name] for name in free)])[:, numbers]
        moves = [1.0, *(math.log(values[name] / lines.at[name]) for name in free)]
        found: Sequence[float] = np.array(moves) @ table
        return found

    return least_errors(free, log_errors, [lines.rows[i].op for i in numbers], weights)
