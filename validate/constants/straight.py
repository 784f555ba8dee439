"""Fits along straight lines: one table of slopes serves a fit without each machine in turn.

Times are sums of parts that each constant lengthens or shortens, so the logarithm of a time is nearly straight in those
of the constants, near those in use.  Its slopes are taken once, one prediction of all rows for each constant; after
that a fit predicts nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from validate.constants.least import Found, Prior, least_errors
from validate.constants.material import FitRow

__all__ = ["Lines", "draw_lines", "fit_along"]

_STEP = 0.02  # of the logarithm of a constant: wider than where rounding matters, narrower than what fits move


@dataclass(frozen=True, slots=True)
class Lines:
    """``errors`` of rows, log(predicted / measured), with the constants ``at``, and how each constant moves them.

    ``slopes``, by the constant's name, are of the error over the logarithm of the constant.
    """

    rows: tuple[FitRow, ...]
    at: dict[str, float]
    errors: tuple[float, ...]
    slopes: dict[str, tuple[float, ...]]


def draw_lines(
    rows: Sequence[FitRow], at: Mapping[str, float], log_errors: Callable[[Mapping[str, float]], Sequence[float]]
) -> Lines:
    """Return the lines of *rows* through the constants *at*; *log_errors* predicts all rows with constants by name."""
    errors = tuple(log_errors(at))
    slopes = {}
    for name, value in at.items():
        moved = log_errors({**at, name: value * math.exp(_STEP)})
        slopes[name] = tuple((new - old) / _STEP for new, old in zip(moved, errors, strict=True))
    return Lines(tuple(rows), dict(at), errors, slopes)


def fit_along(lines: Lines, free: Mapping[str, Prior], kept: Collection[int], weights: Sequence[float]) -> Found:
    """Return the constants of least error of the rows *kept*, by their numbers, as far as lines are straight.

    *weights*: of each row that is kept.  Raises MissingDependency where SciPy is not installed.
    """
    numbers = sorted(kept)
    table: Any = None

    def log_errors(values: Mapping[str, float]) -> Sequence[float]:
        nonlocal table
        import numpy as np  # here, for least_errors says what is missing where it is not

        if table is None:
            table = np.array([lines.errors, *(lines.slopes[name] for name in free)])[:, numbers]
        moves = [1.0, *(math.log(values[name] / lines.at[name]) for name in free)]
        found: Sequence[float] = np.array(moves) @ table
        return found

    return least_errors(free, log_errors, [lines.rows[i].op for i in numbers], weights)
