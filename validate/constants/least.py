"""Constants of least error: the one fit that devices are calibrated with and that shared constants come from.

Least squares of log(predicted / measured) with a soft loss: what is off by much more than rows of its kind usually
are counts by its size rather than the square.  Every constant is drawn to what is known of it before any row is seen:
one that few rows depend on stays near that, one that many rows agree on goes where they want it.  Fitted twice:
the second time rows of each kind weigh as the errors that the first fit left of them allow, so that kinds whose model
is good are not bent by those whose model is not; and errors are taken to be Student's, with two degrees of freedom:
what is far off then counts hardly more the farther it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simulator.errors import MissingDependency
from validate.tables.statistics import percentile

__all__ = ["Found", "Prior", "least_errors"]

Loss = Callable[[Any, Any, int], Any]
"""Of NumPy, squared residuals, and how many of these are of rows: the loss of each and its two derivatives."""

# What rows of a kind scatter by, before any is seen (one standard deviation of the logarithm),
# how many rows that opinion is worth, and what no kind falls below.
_SCATTER, _OPINION_ROWS, _LEAST_SCATTER = 0.15, 3.0, 0.02
# Of Student's distribution.  Of 1.5, 2, 4 and a soft loss, on eight draws of 50 rows of each device: 1.5 and 2 leave
# least error of linear layers, products and convolutions, 0.2 points less than a soft loss.
_DEGREES = 2.0
_STEP = 1e-3  # of the logarithm of a constant, for slopes
_AT_BOUND = 1e-3  # of the logarithm: nearer to a bound than this a constant is said to be at it


@dataclass(frozen=True, slots=True)
class Prior:
    """What is known of a constant before any row is seen: a value, the spread of its logarithm, and bounds."""

    value: float
    sigma: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Found:
    """Constants by name, the relative spread (one standard deviation) of each, and those that are at a bound.

    ``unseen``: log(predicted / measured) of each row by constants fitted to all the others, where that was asked for.
    """

    values: dict[str, float]
    spread: dict[str, float]
    at_bound: tuple[str, ...]
    unseen: tuple[float, ...] = ()


def least_errors(
    priors: Mapping[str, Prior],
    log_errors: Callable[[Mapping[str, float]], Sequence[float]],
    kinds: Sequence[str],
    weights: Sequence[float] | None = None,
    *,
    max_evaluations: int | None = None,
    unseen: bool = False,
) -> Found:
    """Return the constants for which *log_errors* of all rows are least.

    Parameters
    ----------
    priors : mapping
        What is known of each constant.
    log_errors : function
        Returns log(predicted / measured) of every row for constants by name.
    kinds : sequence of str
        The kind of each row.
    weights : sequence of float, optional
        How often each row counts; once otherwise.
    unseen : bool
        Also say what errors would be left of each row if it had no part in the fit: one step of Gauss and Newton from
        the constants found, the others weighing as they do there.

    Raises MissingDependency where SciPy is not installed.
    """
    np, least_squares = _scipy()
    names = list(priors)
    center = np.log([priors[name].value for name in names])
    sigma = np.array([priors[name].sigma for name in names])
    low, high = (np.log([getattr(priors[name], end) for name in names]) - center for end in ("low", "high"))
    often = np.sqrt(np.ones(len(kinds)) if weights is None else np.array(weights, dtype=float))

    def constants(x: Any) -> dict[str, float]:
        return {name: math.exp(value) for name, value in zip(names, center + x, strict=True)}

    def errors(x: Any) -> Any:
        return np.array(log_errors(constants(x)))

    def fitted(start: Any, scatter: Any, loss: Loss) -> Any:
        return least_squares(
            lambda x: np.concatenate([errors(x) * often / scatter, x / sigma]),
            start,
            bounds=(low, high),
            loss=lambda z: loss(np, z, len(kinds)),
            diff_step=_STEP,
            max_nfev=max_evaluations,
        )

    found = fitted(np.zeros(len(names)), np.full(len(kinds), _SCATTER), _soft)
    scatter = np.array(_scatter(kinds, errors(found.x)))
    found = fitted(found.x, scatter, _student)
    spread = np.sqrt(np.maximum(np.diag(np.linalg.pinv(found.jac.T @ found.jac)), 0.0))
    ends = np.minimum(np.abs(found.x - low), np.abs(found.x - high))
    return Found(
        constants(found.x),
        {name: float(f"{value:.2g}") for name, value in zip(names, spread, strict=True)},
        tuple(name for name, end in zip(names, ends, strict=True) if end < _AT_BOUND),
        tuple(_unseen(np, errors, found.x, often / scatter, sigma).tolist()) if unseen else (),
    )


def _unseen(np: Any, errors: Callable[[Any], Any], x: Any, scale: Any, sigma: Any) -> Any:
    """Return the errors of rows by constants near *x* that each of them had no part in.

    *scale* is what errors are multiplied with in the fit, *sigma* what draws the constants to what is known of them.
    """
    left = errors(x)
    slopes = np.array([(errors(x + _STEP * unit) - left) / _STEP for unit in np.eye(len(x))]).T
    weights = scale**2 * _student(np, (scale * left) ** 2, len(left))[1]
    all_rows = slopes.T @ (weights[:, None] * slopes) + np.diag(sigma**-2.0)
    found = []
    for slope, weight, error in zip(slopes, weights, left, strict=True):
        others = all_rows - weight * np.outer(slope, slope)
        found.append(error + slope @ np.linalg.solve(others, weight * error * slope))
    return np.array(found)


def _soft(np: Any, squares: Any, n_rows: int) -> Any:
    """Return the loss of squared residuals with its derivatives: soft for rows, plain for priors."""
    rows = np.sqrt(1.0 + squares[:n_rows])
    return _with_plain(np, (2.0 * (rows - 1.0), 1.0 / rows, -0.5 / rows**3), squares[n_rows:])


def _student(np: Any, squares: Any, n_rows: int) -> Any:
    """Return as :func:`_soft` the loss of Student's distribution: (d + 1) log(1 + z / d), twice its logarithm."""
    weights = (_DEGREES + 1.0) / (_DEGREES + squares[:n_rows])
    losses = (_DEGREES + 1.0) * np.log1p(squares[:n_rows] / _DEGREES)
    return _with_plain(np, (losses, weights, -(weights**2) / (_DEGREES + 1.0)), squares[n_rows:])


def _with_plain(np: Any, rows: tuple[Any, Any, Any], plain: Any) -> Any:
    besides = (plain, np.ones_like(plain), np.zeros_like(plain))
    return np.array([np.concatenate(pair) for pair in zip(rows, besides, strict=True)])


def _scatter(kinds: Sequence[str], log_errors: Sequence[float]) -> list[float]:
    """Return by how much rows of each row's kind scatter: 1.48 times the median error, drawn to the usual."""
    found = {}
    for kind in set(kinds):
        sizes = sorted(abs(error) for other, error in zip(kinds, log_errors, strict=True) if other == kind)
        seen = 1.48 * percentile(sizes, 0.5)
        n = len(sizes)
        variance = (n * seen**2 + _OPINION_ROWS * _SCATTER**2) / (n + _OPINION_ROWS)
        found[kind] = max(_LEAST_SCATTER, math.sqrt(variance))
    return [found[kind] for kind in kinds]


def _scipy() -> tuple[Any, Any]:
    try:
        import numpy as np
        from scipy.optimize import least_squares
    except ImportError:
        raise MissingDependency("fitting needs SciPy; in the clone: pip install -e '.[fit]'") from None
    return np, least_squares
