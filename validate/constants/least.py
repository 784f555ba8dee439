"""Least-squares fit of constants, used for calibrations of devices and for the shared constants.

It minimises log(predicted / measured) in two passes, with a prior for every constant: by a soft L1 loss, then with the
rows of each kind weighed by the scatter that the first left, and Student's distribution (docs/constants.md).
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from simulator.errors import MissingDependency
from simulator.records import dataclass
from validate.kinds.kind import MeasuredRow
from validate.tables.statistics import percentile

# Prior scatter of the rows of a kind (standard deviation of the logarithm), its weight in rows, and the least scatter.
_SCATTER, _OPINION_ROWS, _LEAST_SCATTER = 0.15, 3.0, 0.02
# Degrees of freedom of Student's distribution.  Compared with 1.5, 4 and a soft L1 loss, on eight draws of 50 rows of
# each device: 1.5 and 2 leave the least error of linear layers, products and convolutions, 0.2 points below soft L1.
_DEGREES = 2.0
_STEP = 1e-3  # step of a constant's logarithm, for slopes
_LINE_STEP = 0.02  # the same where errors are linearised: above rounding errors, below the moves of fits
_AT_BOUND = 1e-3  # distance from a bound, in logarithms, below which a constant counts as at its bound


@dataclass(frozen=True, slots=True)
class Prior:
    """The prior of a constant: its value, the standard deviation of its logarithm, and its bounds."""

    value: float
    sigma: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class LeastSquares:
    """Fitted constants, their relative standard deviations, those at a bound; ``unseen``: log errors by other rows."""

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
) -> LeastSquares:
    """Return the constants, by *priors*, that minimise *log_errors* (of constants by name) over all rows.

    *kinds* and *weights* (1 by default) are the rows'; *max_evaluations* of each of two passes.  *unseen*: estimate
    each row's error without it too, by a Gauss-Newton step with the others' weights.  Raises MissingDependency without
    SciPy.
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

    def fitted(start: Any, scatter: Any, loss: Callable[[Any, Any, int], Any]) -> Any:
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
    return LeastSquares(
        constants(found.x),
        {name: float(f"{value:.2g}") for name, value in zip(names, spread, strict=True)},
        tuple(name for name, end in zip(names, ends, strict=True) if end < _AT_BOUND),
        tuple(_unseen(np, errors, found.x, often / scatter, sigma).tolist()) if unseen else (),
    )


def _unseen(np: Any, errors: Callable[[Any], Any], x: Any, scale: Any, sigma: Any) -> Any:
    """Return each row's log error by constants near *x* fitted without it; *scale* by row, *sigma* of the priors."""
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
    """Return the soft L1 loss with its derivatives; for priors the plain square."""
    rows = np.sqrt(1.0 + squares[:n_rows])
    return _with_plain(np, (2.0 * (rows - 1.0), 1.0 / rows, -0.5 / rows**3), squares[n_rows:])


def _student(np: Any, squares: Any, n_rows: int) -> Any:
    """Return -2 log of Student's density, (d + 1) log(1 + z / d), with its derivatives; for priors the plain square."""
    weights = (_DEGREES + 1.0) / (_DEGREES + squares[:n_rows])
    losses = (_DEGREES + 1.0) * np.log1p(squares[:n_rows] / _DEGREES)
    return _with_plain(np, (losses, weights, -(weights**2) / (_DEGREES + 1.0)), squares[n_rows:])


def _with_plain(np: Any, rows: tuple[Any, Any, Any], plain: Any) -> Any:
    besides = (plain, np.ones_like(plain), np.zeros_like(plain))
    return np.array([np.concatenate(pair) for pair in zip(rows, besides, strict=True)])


def _scatter(kinds: Sequence[str], log_errors: Sequence[float]) -> list[float]:
    """Return the scatter of each row's kind: 1.48 times the median absolute error, shrunk towards ``_SCATTER``."""
    found = {}
    for kind in set(kinds):
        sizes = sorted(abs(error) for other, error in zip(kinds, log_errors, strict=True) if other == kind)
        seen, n = 1.48 * percentile(sizes, 0.5), len(sizes)
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


@dataclass(frozen=True, slots=True)
class Lines:
    """Linearised errors of rows: ``errors`` are log(predicted / measured) at the constants ``at``.

    ``slopes`` holds by constant the derivative of each row's error by the constant's logarithm, which near ``at`` is
    almost constant, as times are sums: one prediction per constant serves all leave-one-out fits.
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
        moved = log_errors({**at, name: value * math.exp(_LINE_STEP)})
        slopes[name] = tuple((new - old) / _LINE_STEP for new, old in zip(moved, errors, strict=True))
    return Lines(tuple(rows), dict(at), errors, slopes)


def fit_along(lines: Lines, free: Mapping[str, Prior], kept: Collection[int], weights: Sequence[float]) -> LeastSquares:
    """Return the constants *free* that minimise the linearised errors of rows *kept*, in rising order of *weights*."""
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
