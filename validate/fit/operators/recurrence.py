"""Fit the constants of recurrent layers: ``python -m validate.fit.operators.recurrence ops.csv``."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import fields

from simulator.devices.gpu.recurrence import RECURRENCE, RecurrenceCosts, recurrence_cost
from simulator.devices.kernels import Recurrence
from simulator.devices.lowering import lower_operator
from validate.fit.constants import fit_constants
from validate.fit.operators.judge import Predict, error_lines, left_out
from validate.fit.operators.rows import Measured, read_measured

__all__ = ["FREE", "fit_recurrence", "main", "predicted_s"]

_EVALUATIONS = 12

FREE = {
    "forward": (0.3, 1.2),
    "forward_pascal": (0.2, 1.2),
    "forward_late": (0.8, 2.0),
    "backward": (0.1, 1.2),
    "backward_pascal": (0.1, 1.2),
    "backward_late": (0.8, 3.0),
    "amd_forward": (0.2, 1.2),
    "amd_backward": (0.2, 1.2),
    "all_steps": (0.5, 1.2),
    "tensor": (0.2, 1.0),
    "tile_intensity": (1.0, 60.0),
    "prologue_k": (1.0, 150.0),
    "residency": (0.01, 2.0),
    "step_s": (1e-6, 6e-5),
    "amd_step_s": (1e-6, 9e-5),
    "call_s": (1e-6, 1e-4),
}


def predicted_s(row: Measured, costs: RecurrenceCosts) -> float:
    """Return the predicted seconds of *row*."""
    kernels = lower_operator(row.query.operator, row.query.phase, row.query.precision)
    return sum(recurrence_cost(row.gpu, kernel, costs).time_s for kernel in kernels if isinstance(kernel, Recurrence))


def fit_recurrence(rows: Sequence[Measured]) -> RecurrenceCosts:
    """Return the constants fitted to *rows*, from those in use."""

    def log_errors(costs: RecurrenceCosts) -> list[float]:
        return [math.log(predicted_s(row, costs) / row.time_s) for row in rows]

    return fit_constants(RECURRENCE, FREE, log_errors, max_evaluations=_EVALUATIONS).constants


def _predictor(costs: RecurrenceCosts) -> Predict:
    return lambda row: predicted_s(row, costs)


def main(argv: Sequence[str]) -> None:
    """Print the constants, and the errors in sample and of each device left out."""
    rows = read_measured(argv[0], ops=("rnn", "lstm", "gru"))
    found = fit_recurrence(rows)
    for field in fields(found):
        print(f"    {field.name}: float = {getattr(found, field.name):.3g}")  # noqa: T201  the command's output
    print("\n".join(["", "in sample", *error_lines(rows, lambda _: _predictor(found))]))  # noqa: T201
    if "--in-sample" in argv:
        return
    by_device = {device: _predictor(costs) for device, costs in left_out(rows, fit_recurrence).items()}
    print("\n".join(["", "device left out", *error_lines(rows, lambda row: by_device[row.query.device])]))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
