"""Fit the constants of convolutions: ``python -m validate.fit.operators.convolution ops.csv``.

Each device and direction counts alike, however many rows it has.  The constants of fp32 lanes come first; those
of tensor cores are fitted to fp16 with the others held.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import fields

from simulator.devices.dispatch import isolated_time
from simulator.devices.gpu.convolution import convolution_cost
from simulator.devices.gpu.convolution_costs import CONVOLUTION, ConvolutionCosts
from simulator.devices.kernels import Convolution
from simulator.devices.lowering import lower_operator
from validate.fit.constants import fit_constants
from validate.fit.operators.judge import Predict, balanced, calibrated, error_lines, left_out
from validate.fit.operators.rows import Measured, read_measured

__all__ = ["LANES", "TENSOR", "fit_convolution", "main", "predicted_s"]

_ROWS_EACH = 70
_EVALUATIONS = 12
_MOSTLY_DEVICE_S = 1.2e-3

# The constants that fp32 rows fix, each with its bounds: no product beats the peak, with lanes for integers or not.
LANES = {
    "tile_intensity": (1.0, 60.0),
    "quantisation": (0.2, 1.0),
    "residency": (0.01, 2.0),
    "prologue_k": (1.0, 100.0),
    "gemm": (0.5, 0.83),
    "early": (0.5, 1.0),
    "separate_integers": (1.0, 1.2),
    "backward_data": (0.6, 1.2),
    "backward_weight": (0.4, 1.2),
    "backward_weight_1x1": (0.4, 1.2),
    "split_share": (0.05, 1.0),
    "winograd_fused": (0.3, 0.83),
    "winograd_fused_prologue_k": (1.0, 64.0),
    "winograd": (0.4, 0.83),
    "fft": (0.2, 1.0),
    "transform": (0.4, 1.0),
    "weight_transform": (0.4, 1.0),
    "filter_transform": (0.05, 1.0),
    "spread": (0.1, 1.0),
    "amd_gemm": (0.3, 1.2),
    "amd_backward_data": (0.3, 1.2),
    "amd_winograd": (0.3, 1.0),
    "amd_backward_weight": (0.3, 1.2),
    "amd_backward_weight_direct": (0.3, 1.2),
    "amd_spread": (0.1, 1.0),
    "amd_image_s": (1e-6, 5e-5),
    "kernel_s": (1e-6, 1.2e-5),
    "next_kernel_s": (2e-6, 1e-5),
}
# Those that fp16 on tensor cores fixes.
TENSOR = {
    "tensor": (0.4, 0.95),
    "tensor_tile_intensity": (1.0, 100.0),
    "tensor_prologue_k": (8.0, 256.0),
    "layout": (0.1, 1.0),
    "tensor_kernel_s": (2e-6, 8e-6),
}


def predicted_s(row: Measured, costs: ConvolutionCosts) -> float:
    """Return the predicted seconds of *row*."""
    query = row.query
    kernels = lower_operator(query.operator, query.phase, query.precision)
    kernels_s = sum(convolution_cost(row.gpu, k, costs).time_s for k in kernels if isinstance(k, Convolution))
    return isolated_time(row.gpu, query.operator, query.phase, kernels_s) if query.includes_dispatch else kernels_s


def fit_convolution(rows: Sequence[Measured]) -> ConvolutionCosts:
    """Return the constants fitted to *rows*, from those in use."""
    costs = CONVOLUTION
    for precision, free in (("fp32", LANES), ("fp16", TENSOR)):
        some = balanced([row for row in rows if row.query.precision == precision and _on_device(row)], _ROWS_EACH)
        if some:
            costs = _fit(some, costs, free)
    return costs


def _on_device(row: Measured) -> bool:
    """Return whether the device takes most of the time: what the host takes varies."""
    return not row.query.includes_dispatch or predicted_s(row, CONVOLUTION) > _MOSTLY_DEVICE_S


def _fit(rows: Sequence[Measured], start: ConvolutionCosts, free: dict[str, tuple[float, float]]) -> ConvolutionCosts:
    def log_errors(costs: ConvolutionCosts) -> list[float]:
        return [math.log(predicted_s(row, costs) / row.time_s) for row in rows]

    return fit_constants(start, free, log_errors, max_evaluations=_EVALUATIONS).constants


def _predictor(costs: ConvolutionCosts) -> Predict:
    return lambda row: predicted_s(row, costs)


def main(argv: Sequence[str]) -> None:
    """Print the constants, and the errors in sample, of each device left out, and after a calibration."""
    rows = [r for r in read_measured(argv[0], ops=("conv2d",)) if r.query.precision in ("fp32", "fp16")]
    found = fit_convolution(rows)
    for field in fields(found):
        print(f"    {field.name}: float = {getattr(found, field.name):.3g}")  # noqa: T201  the command's output
    print("\n".join(["", "in sample", *error_lines(rows, lambda _: _predictor(found))]))  # noqa: T201
    if "--in-sample" in argv:
        return
    by_device = {device: _predictor(costs) for device, costs in left_out(rows, fit_convolution).items()}
    print("\n".join(["", "device left out", *error_lines(rows, lambda row: by_device[row.query.device])]))  # noqa: T201
    factors: dict[str, Predict] = {}
    judged: list[Measured] = []
    for device, predict in by_device.items():
        factors[device], rest = calibrated([row for row in rows if row.query.device == device], predict)
        judged += rest
    lines = error_lines(judged, lambda row: factors[row.query.device])
    print("\n".join(["", "device left out, then one factor from 50 of its rows", *lines]))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
