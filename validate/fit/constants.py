"""Robust fits of named constants: log-space, SciPy's least squares with a soft loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

__all__ = ["Fitted", "fit_constants"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fitted(Generic[T]):
    """Constants, and the relative spread (one standard deviation) of each that was free."""

    constants: T
    spread: dict[str, float]


def fit_constants(
    start: T,
    free: Mapping[str, tuple[float, float]],
    log_errors: Callable[[T], Sequence[float]],
    *,
    loss_scale: float = 0.1,
    max_evaluations: int | None = None,
) -> Fitted[T]:
    """Return *start*, a dataclass, with the fields in *free* (each within its bounds, all positive) fitted.

    *log_errors* gives log(predicted / measured) of every row.  Errors well above *loss_scale*
    count by their size rather than its square, so that a few odd rows bend nothing.
    """
    import numpy as np
    from scipy.optimize import least_squares

    names = list(free)
    made: Any = start

    def constants(x: Any) -> T:
        fitted: T = replace(made, **{name: math.exp(value) for name, value in zip(names, x, strict=True)})
        return fitted

    low = np.log([free[name][0] for name in names])
    high = np.log([free[name][1] for name in names])
    x0 = np.clip(np.log([getattr(start, name) for name in names]), low + 1e-9, high - 1e-9)
    found = least_squares(
        lambda x: np.asarray(log_errors(constants(x))),
        x0,
        bounds=(low, high),
        loss="soft_l1",
        f_scale=loss_scale,
        diff_step=1e-3,
        max_nfev=max_evaluations,
    )
    degrees = max(1, len(found.fun) - len(names))
    variance = float(np.sum(np.minimum(found.fun**2, (3 * loss_scale) ** 2))) / degrees
    curvature = np.diag(np.linalg.pinv(found.jac.T @ found.jac))
    spread = np.sqrt(np.maximum(curvature, 0.0) * variance)  # rounding may leave less than nothing
    return Fitted(constants(found.x), {name: float(s) for name, s in zip(names, spread, strict=True)})
