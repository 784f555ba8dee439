"""Fit the factors of a device to measured operators.

Least squares of log(predicted / measured) with a soft loss: what is off by much more than rows of
its operator usually are counts by its size rather than the square.  Every factor is drawn to 1: one that
few rows depend on stays near 1, one that many rows agree on goes where they want it.  Fitted twice: the
second time each operator's rows weigh as the errors that the first fit left of them allow, so that operators
whose model is good are not bent by those whose model is not; and errors are taken to be Student's, with
two degrees of freedom: what is far off then counts hardly more the farther it is.  Cards that throttled in
part of a measurement, and shapes whose kernel is not the expected one, are errors of that kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from simulator.devices.calibration import Calibration
from simulator.devices.lowering import lower_operator
from simulator.devices.predict import Device, kernel_class
from simulator.errors import InputError, MissingDependency
from validate.operators.predict import predict_operator
from validate.operators.query import OperatorQuery
from validate.score.query import NotScored
from validate.score.statistics import percentile

__all__ = ["Calibrated", "fit_calibration"]

Loss = Callable[[Any, Any, int], Any]
"""Of NumPy, squared residuals, and how many of these are of rows: the loss of each and its two derivatives."""

# How far from 1 a factor is before any row is seen, one standard deviation of its logarithm:
# what leaving devices out shows of the shared constants.
# Classes less than rates: what all classes share belongs to the rate.
_PRIOR = {"compute": 0.15, "bandwidth": 0.1, "dispatch": 0.3, "by_class": 0.1}
_BOUND = 3.0
# What rows of an operator scatter by, before any is seen (one standard deviation of the logarithm),
# how many rows that opinion is worth, and what no operator falls below.
_SCATTER, _OPINION_ROWS, _LEAST_SCATTER = 0.15, 3.0, 0.02
# Of Student's distribution.  Of 1.5, 2, 4 and a soft loss, on eight draws of 50 rows of each device: 1.5 and 2 leave
# least error of linear layers, products and convolutions, 0.2 points less than a soft loss.
_DEGREES = 2.0


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Factors, the relative spread (one standard deviation) of each, and the errors that are left, signed."""

    calibration: Calibration
    spread: dict[str, float]
    errors: tuple[float, ...]


def fit_calibration(gpu: Device, rows: Sequence[tuple[OperatorQuery, float]]) -> Calibrated:
    """Return the factors of *gpu* that fit *rows*: what was asked, and the measured seconds.

    Raises
    ------
    InputError
        Where no row can be predicted on the device.
    MissingDependency
        Where SciPy is not installed.

    """
    np, least_squares = _scipy()
    bare = replace(gpu, calibration=Calibration())
    usable = [(query, time_s) for query, time_s in rows if _predictable(bare, query)]
    if not usable:
        raise InputError(f"{gpu.name}: no row can be calibrated on")
    names = _free(usable)
    sigma = np.array([_PRIOR[name.partition(".")[0]] for name in names])
    bound = math.log(_BOUND)

    def log_errors(x: Any) -> Any:
        trial = replace(bare, calibration=_calibration(names, x))
        return np.array([math.log(predict_operator(trial, query) / time_s) for query, time_s in usable])

    def fitted(start: Any, scatter: Any, loss: Loss) -> Any:
        return least_squares(
            lambda x: np.concatenate([log_errors(x) / scatter, x / sigma]),
            start,
            bounds=(-bound, bound),
            loss=lambda z: loss(np, z, len(usable)),
            diff_step=1e-3,
        )

    found = fitted(np.zeros(len(names)), np.full(len(usable), _SCATTER), _soft)
    scatter = _scatter([query.op for query, _ in usable], log_errors(found.x))
    found = fitted(found.x, np.array(scatter), _student)
    calibration = _calibration(names, found.x, digits=4)
    trial = replace(bare, calibration=calibration)
    errors = tuple(predict_operator(trial, query) / time_s - 1 for query, time_s in usable)
    return Calibrated(calibration, _spread(np, names, found), errors)


def _soft(np: Any, squares: Any, n_rows: int) -> Any:
    """Return the loss of squared residuals with its derivatives: soft for rows, plain for what draws to 1."""
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


def _scatter(ops: Sequence[str], log_errors: Sequence[float]) -> list[float]:
    """Return by how much rows of each row's operator scatter: 1.48 times the median error, drawn to the usual."""
    found = {}
    for op in set(ops):
        sizes = sorted(abs(error) for other, error in zip(ops, log_errors, strict=True) if other == op)
        seen = 1.48 * percentile(sizes, 0.5)
        n = len(sizes)
        variance = (n * seen**2 + _OPINION_ROWS * _SCATTER**2) / (n + _OPINION_ROWS)
        found[op] = max(_LEAST_SCATTER, math.sqrt(variance))
    return [found[op] for op in ops]


def _free(rows: Sequence[tuple[OperatorQuery, float]]) -> list[str]:
    """Return the factors that *rows* can say anything of."""
    classes = {
        kernel_class(kernel)
        for query, _ in rows
        for kernel in lower_operator(query.operator, query.phase, query.precision)
    }
    dispatch = ["dispatch"] if any(query.includes_dispatch for query, _ in rows) else []
    return ["compute", "bandwidth", *dispatch, *(f"by_class.{name}" for name in sorted(classes))]


def _calibration(names: Sequence[str], x: Sequence[float], digits: int = 0) -> Calibration:
    values = {name: math.exp(value) for name, value in zip(names, x, strict=True)}
    if digits:
        values = {name: float(f"{value:.{digits}g}") for name, value in values.items()}
    classes = {name.partition(".")[2]: values[name] for name in names if name.startswith("by_class.")}
    return Calibration(values["compute"], values["bandwidth"], values.get("dispatch", 1.0), classes)


def _spread(np: Any, names: Sequence[str], found: Any) -> dict[str, float]:
    """Return the spread of each factor, from the curvature of the loss, the prior included."""
    spread = np.sqrt(np.diag(np.linalg.pinv(found.jac.T @ found.jac)))
    return {name: float(f"{value:.2g}") for name, value in zip(names, spread, strict=True)}


def _predictable(gpu: Device, query: OperatorQuery) -> bool:
    try:
        return predict_operator(gpu, query) > 0
    except NotScored:
        return False


def _scipy() -> tuple[Any, Any]:
    try:
        import numpy as np
        from scipy.optimize import least_squares
    except ImportError:
        raise MissingDependency("calibrating needs SciPy; in the clone: pip install -e '.[fit]'") from None
    return np, least_squares
