"""Fit the constants of products on tensor cores since Ampere: ``python -m validate.fit.operators.tensor_product``.

It takes tables of operators: those that ``validate import`` makes (docs/published.md) hold thousands of products
of seven GPUs.  As many rows count of each device and precision, drawn evenly over the tables; a sixteenth of the
published shapes never counts.  Each constant is held softly to a round figure, as a device left out takes some
constants' only evidence with it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, make_dataclass, replace
from typing import Any

from simulator.devices.dispatch import isolated_time
from simulator.devices.gpu.gpu import Gpu
from simulator.devices.gpu.tensor_product import TENSOR_PRODUCTS, TensorProducts, is_pipelined, tensor_product_time
from simulator.devices.kernels import Gemm
from simulator.devices.lowering import lower_operator
from simulator.devices.predict import cold_device
from simulator.workload.operators import Linear
from validate.fit.constants import Fitted, fit_constants
from validate.fit.operators.judge import error_lines, evenly_spaced, left_out
from validate.fit.operators.rows import Measured, read_measured
from validate.importing.sample import HELD_OUT
from validate.importing.tables import DATASET
from validate.operators.predict import as_issued

__all__ = ["OPERATORS", "fit_tensor_product", "is_held_out", "main", "predicted_s", "usable"]

OPERATORS = ("linear", "matmul", "bmm")
_FACTOR = 30.0  # bounds: so many times less or more than assumed
_FIRM = 0.5  # so many times the change of a constant's logarithm is an error, as one row's is
_ROWS_EACH = 200


@dataclass(frozen=True, slots=True)
class _Assumed:
    """A constant before measurements, by how operands come."""

    copies: float
    warps: float
    firm: float = _FIRM


_ASSUMED: Mapping[str, _Assumed] = {
    "start_clocks": _Assumed(5000.0, 6500.0),
    "edge_clocks": _Assumed(1000.0, 500.0),
    "edge_32_bit_clocks": _Assumed(2000.0, 8000.0),
    "rate": _Assumed(0.95, 1.0, 20.0),
    "rate_32_bit": _Assumed(0.7, 0.7, 3.0),
    "fetch": _Assumed(5.0, 1.0),
    "alone": _Assumed(4000.0, 4000.0),
    "latency_s": _Assumed(1e-9, 1e-9),
    "cached": _Assumed(0.5, 0.5),
    "overlap": _Assumed(3.0, 3.0),
    "bandwidth_share": _Assumed(0.9, 0.95, 3.0),
    "l2_rate_share": _Assumed(0.7, 0.7),
    "l2_share": _Assumed(0.3, 0.2),
    "l2_clock_bytes": _Assumed(40.0, 100.0),
    "exposed": _Assumed(0.3, 0.3),
    "reduce_clocks": _Assumed(5000.0, 5000.0),
    "partial": _Assumed(0.5, 0.5),
}
# Energy of an operation in 16 bit (STAS MAMF: 794.5 TFLOP/s of 626 W); others are as clock.py has them.
_JOULE = "async_16_bit_J"
_ASSUMED_JOULE = 8e-13


def usable(row: Measured) -> bool:
    """Return whether *row* is a product that this model knows."""
    return row.query.op in OPERATORS and is_pipelined(row.gpu, row.query.precision)


def is_held_out(row: Measured) -> bool:
    """Return whether *row* is of the published shapes that no constant is fitted to (docs/published.md)."""
    asked = row.query.operator
    return (
        row.dataset == DATASET
        and isinstance(asked, Linear)
        and HELD_OUT.holds((asked.rows, asked.outputs, asked.inputs))
    )


def predicted_s(row: Measured, constants: TensorProducts = TENSOR_PRODUCTS) -> float:
    """Return the predicted seconds of *row*, for which :func:`usable` holds."""
    query = row.query
    gpu = cold_device(row.gpu) if query.is_cold else row.gpu
    assert isinstance(gpu, Gpu)
    kernels = lower_operator(query.operator, query.phase, query.precision)
    products = (kernel for kernel in kernels if isinstance(kernel, Gemm))
    time_s = sum(as_issued(gpu, tensor_product_time(gpu, kernel, constants).time_s, query) for kernel in products)
    return isolated_time(gpu, query.operator, query.phase, time_s) if query.includes_dispatch else time_s


def fit_tensor_product(
    rows: Sequence[Measured],
    start: TensorProducts = TENSOR_PRODUCTS,
    *,
    most: int = _ROWS_EACH,
    max_evaluations: int | None = 15,
) -> Fitted[TensorProducts]:
    """Return *start* with its constants fitted to *rows*; those held out, or not :func:`usable`, do not count."""
    used = [row for row in rows if usable(row) and not is_held_out(row)]
    found = start
    spread: dict[str, float] = {}
    for way in ("copies", "warps"):
        alike = [row for row in used if row.gpu.traits.operands == way]
        chosen = evenly_spaced(alike, most, lambda row: (row.gpu.name, row.query.precision))
        if chosen:
            found, fitted_spread = _fit_way(chosen, found, way, max_evaluations)
            spread |= fitted_spread
    return Fitted(found, spread)


def _fit_way(
    rows: Sequence[Measured], start: TensorProducts, way: str, max_evaluations: int | None
) -> tuple[TensorProducts, dict[str, float]]:
    assumed = {name: (getattr(both, way), both.firm) for name, both in _ASSUMED.items()}
    if way == "warps":
        assumed[_JOULE] = (_ASSUMED_JOULE, 3.0)
    flat = make_dataclass("Flat", [(name, float) for name in assumed], frozen=True)
    costs = getattr(start, way)
    beginning = flat(**{n: getattr(start.power if n == _JOULE else costs, n) for n in assumed})

    def constants(candidate: Any) -> TensorProducts:
        values = {name: getattr(candidate, name) for name in assumed}
        power = replace(start.power, **{_JOULE: values.pop(_JOULE)}) if _JOULE in values else start.power
        changed: TensorProducts = replace(start, power=power, **{way: replace(costs, **values)})
        return changed

    def errors(candidate: Any) -> list[float]:
        made = constants(candidate)
        found = [math.log(predicted_s(row, made) / row.time_s) for row in rows]
        return found + [firm * math.log(getattr(candidate, n) / value) for n, (value, firm) in assumed.items()]

    bounds = {name: (value / _FACTOR, value * _FACTOR) for name, (value, _) in assumed.items()}
    fitted = fit_constants(beginning, bounds, errors, max_evaluations=max_evaluations)
    return constants(fitted.constants), {f"{way}.{name}": fitted.spread[name] for name in assumed}


def main(argv: Sequence[str]) -> None:
    """Print the constants, and the errors in sample and of each device left out."""
    rows = [row for file in argv if not file.startswith("--") for row in read_measured(file) if usable(row)]
    fitted = fit_tensor_product(rows)
    for name, spread in fitted.spread.items():
        way, _, constant = name.partition(".")
        owner = fitted.constants.power if constant == _JOULE else getattr(fitted.constants, way)
        print(f"    {name} = {getattr(owner, constant):.3g}  # +- {spread:.0%}")  # noqa: T201  the command's output
    held_out = [row for row in rows if is_held_out(row)]
    _print_errors("in sample", [row for row in rows if not is_held_out(row)], lambda _: fitted.constants)
    _print_errors("shapes held out", held_out, lambda _: fitted.constants)
    if "--in-sample" not in argv:
        without = left_out(rows, lambda others: fit_tensor_product(others, max_evaluations=10).constants)
        _print_errors("shapes held out, device left out", held_out, lambda row: without[row.query.device])


def _print_errors(title: str, rows: Sequence[Measured], constants: Callable[[Measured], TensorProducts]) -> None:
    if not rows:
        return
    lines = error_lines(rows, lambda row: lambda asked: predicted_s(asked, constants(row)))
    print("\n".join(["", title, *lines]))  # noqa: T201  the command's output


if __name__ == "__main__":
    main(sys.argv[1:])
