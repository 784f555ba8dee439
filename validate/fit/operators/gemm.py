"""Fit the constants of products and of the clock under load: ``python -m validate.fit.operators.gemm ops.csv``.

Products on tensor cores since Ampere are passed over: :mod:`validate.fit.operators.tensor_product` fits theirs.
As many rows count of each device, operator and precision, drawn evenly over the table.  Each constant
is held to what was assumed before any measurement, softly: a device that is left out takes some
constants' only evidence with it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, make_dataclass, replace
from typing import Any

from simulator.devices.dispatch import isolated_time
from simulator.devices.gpu.clock import PowerCosts
from simulator.devices.gpu.gemm import gemm_cost
from simulator.devices.gpu.gemm_tiles import GEMM, GemmConstants
from simulator.devices.gpu.tensor_product import is_pipelined
from simulator.devices.kernels import Gemm
from simulator.devices.lowering import lower_operator
from simulator.errors import InputError
from validate.fit.constants import Fitted, fit_constants
from validate.fit.operators.judge import Predict, calibrated, error_lines, evenly_spaced, left_out
from validate.fit.operators.rows import Measured, read_measured

__all__ = ["OPERATORS", "fit_gemm", "main", "predicted_gemm", "spread_rows"]

OPERATORS = ("linear", "matmul", "bmm")
_FACTOR = 30.0  # bounds: so many times less or more than assumed
# Single measured products count more than tables of the best of several libraries, or of a search.
_WEIGHTS: Mapping[str, float] = {"neusight_ops": 2.0, "deepbench_ops": 0.5}


@dataclass(frozen=True, slots=True)
class _Assumed:
    """A constant before measurements, and how firmly: ``firmness`` times its logarithm's change is an error."""

    value: float
    firmness: float = 0.4


_ASSUMED: Mapping[str, _Assumed] = {
    "fetch": _Assumed(10.0, 0.6),
    "fetch_volta": _Assumed(4.0, 0.3),
    "transpose": _Assumed(6.0, 0.6),
    "straight_volta": _Assumed(4.0),
    "unaligned": _Assumed(0.95, 2.0),
    "fetch_other": _Assumed(10.0),
    "rate_other": _Assumed(0.85),
    "fetch_tensor": _Assumed(4.0),
    "alone": _Assumed(8192.0),
    "alone_tensor": _Assumed(8192.0),
    "tile_clocks": _Assumed(500.0),
    "tile_clocks_tensor": _Assumed(1000.0),
    "overlap": _Assumed(2.0, 1.0),
    "bandwidth_share": _Assumed(0.95, 3.0),
    "wave": _Assumed(1.0, 1.0),
    "pages_early": _Assumed(1.5),
    "page_sharpness_early": _Assumed(1.5),
    "pages_late": _Assumed(8.0),
    "page_sharpness_late": _Assumed(4.0),
    "idle_early": _Assumed(0.5),
    "idle_late": _Assumed(0.8),
    "split_share": _Assumed(0.8),
    "walk_again": _Assumed(0.2),
    "walk_held_bytes": _Assumed(2e8),
    "walk_reach_bytes": _Assumed(6e8),
    "walk_near": _Assumed(0.4),
    "walks_early": _Assumed(1.7),
    "walks_late": _Assumed(8.0),
    "thin_share": _Assumed(0.1, 1.0),
    "start_s": _Assumed(4e-6, 4.0),
    "reduce_early_s": _Assumed(15e-6, 4.0),
    "reduce_s": _Assumed(4e-6, 2.0),
    "power.multiply_add_J": _Assumed(22e-12),
    "power.sm_lanes": _Assumed(106.0, 1.0),
    "power.headroom": _Assumed(1.12, 3.0),
}


def spread_rows(rows: Sequence[Measured], most: int = 100) -> list[Measured]:
    """Return at most *most* rows of each device, operator and precision, evenly spaced in the order of *rows*."""
    return evenly_spaced(rows, most, lambda row: (row.gpu.name, row.query.op, row.query.precision))


def predicted_gemm(row: Measured, constants: GemmConstants = GEMM) -> float:
    """Return the predicted seconds of *row*.

    Raises
    ------
    InputError
        Where the device has no figure for the precision.

    """
    query = row.query
    kernels = lower_operator(query.operator, query.phase, query.precision)
    time_s = sum(gemm_cost(row.gpu, kernel, constants).time_s for kernel in kernels if isinstance(kernel, Gemm))
    if query.includes_dispatch:
        time_s = isolated_time(row.gpu, query.operator, query.phase, time_s)
    return time_s


def fit_gemm(
    rows: Sequence[Measured],
    start: GemmConstants = GEMM,
    *,
    most: int = 100,
    max_evaluations: int | None = 20,
) -> Fitted[GemmConstants]:
    """Return *start* with its constants fitted to *rows* (of :data:`OPERATORS`; others are passed over)."""
    used = [r for r in rows if r.query.op in OPERATORS and _can(r)]
    used = spread_rows(used, most)
    flat = make_dataclass("Flat", [(_flat(name), float) for name in _ASSUMED], frozen=True)
    beginning = flat(**{_flat(name): _get(start, name) for name in _ASSUMED})

    def errors(candidate: Any) -> list[float]:
        constants = _unflatten(start, candidate)
        found = [
            math.sqrt(_WEIGHTS.get(row.dataset, 1.0)) * math.log(predicted_gemm(row, constants) / row.time_s)
            for row in used
        ]
        for name, assumed in _ASSUMED.items():
            found.append(assumed.firmness * math.log(getattr(candidate, _flat(name)) / assumed.value))
        return found

    bounds = {_flat(name): (a.value / _FACTOR, a.value * _FACTOR) for name, a in _ASSUMED.items()}
    fitted = fit_constants(beginning, bounds, errors, max_evaluations=max_evaluations)
    spread = {name: fitted.spread[_flat(name)] for name in _ASSUMED}
    return Fitted(_unflatten(start, fitted.constants), spread)


def _can(row: Measured) -> bool:
    if is_pipelined(row.gpu, row.query.precision):
        return False
    try:
        predicted_gemm(row)
    except InputError:
        return False
    return True


def _flat(name: str) -> str:
    return name.replace(".", "__")


def _get(constants: GemmConstants, name: str) -> float:
    owner: Any = constants.power if name.startswith("power.") else constants
    value: float = getattr(owner, name.removeprefix("power."))
    return value


def _unflatten(start: GemmConstants, candidate: Any) -> GemmConstants:
    values = {name: getattr(candidate, _flat(name)) for name in _ASSUMED}
    power: PowerCosts = replace(
        start.power, **{name.removeprefix("power."): v for name, v in values.items() if name.startswith("power.")}
    )
    return replace(start, power=power, **{name: v for name, v in values.items() if not name.startswith("power.")})


def main(argv: Sequence[str]) -> None:
    """Print the constants, and the errors in sample, of each device left out, and after one factor from 50 rows."""
    rows = [r for r in read_measured(argv[0], ops=OPERATORS) if _can(r)]
    fitted = fit_gemm(rows)
    for name in _ASSUMED:
        print(f"    {name}: float = {_get(fitted.constants, name):.3g}  # +- {fitted.spread[name]:.0%}")  # noqa: T201
    _print_errors("in sample", rows, lambda _: _predictor(fitted.constants))
    if "--in-sample" in argv:
        return
    without = left_out(rows, lambda others: _predictor(fit_gemm(others, most=80, max_evaluations=8).constants))
    _print_errors("device left out", rows, lambda row: without[row.query.device])
    factors: dict[str, Predict] = {}
    judged: list[Measured] = []
    for device, predict in without.items():
        factors[device], rest = calibrated([row for row in rows if row.query.device == device], predict)
        judged += rest
    _print_errors("device left out, then one factor from 50 of its rows", judged, lambda r: factors[r.query.device])


def _predictor(constants: GemmConstants) -> Predict:
    return lambda row: predicted_gemm(row, constants)


def _print_errors(title: str, rows: Sequence[Measured], predict: Callable[[Measured], Predict]) -> None:
    for op in OPERATORS:
        chosen = [row for row in rows if row.query.op == op]
        if chosen:
            print("\n".join(["", f"{op}, {title}", *error_lines(chosen, predict)]))  # noqa: T201  the command's output


if __name__ == "__main__":
    main(sys.argv[1:])
