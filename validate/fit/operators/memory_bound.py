"""Fit the constants of memory-bound kernels: ``python -m validate.fit.operators.memory_bound ops.csv``.

Fitted to elementwise functions, softmax and layer normalisation one at a time between two events, forward:
each operator on each device counts alike.  Short ones, mostly the host's part, count half: they fix what
a call costs the host.  The same operators inside networks are only judged.  What these rows
do not show stays as it is: the caches' bandwidth and size of working set (small kernels of
te42kyfo/gpu-benches), AMD's long streams (MI210 there), arithmetic of elementwise functions and norms
(no more than fp16 on A100 allows), batch normalisation (one H100).
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from simulator.devices.dispatch import DISPATCH, DispatchCosts, isolated_time
from simulator.devices.gpu.memory import MEMORY, MemoryCosts
from simulator.devices.gpu.rowwise import ROWWISE, RowwiseCosts, rowwise_cost
from simulator.devices.gpu.streaming import STREAMING, StreamingCosts, streaming_cost
from simulator.devices.kernels import Rowwise, Streaming
from simulator.devices.lowering import lower_operator
from validate.fit.constants import fit_constants
from validate.fit.operators.judge import Predict, balanced, calibrated, error_lines, left_out
from validate.fit.operators.rows import Measured, read_measured

__all__ = ["BOUNDS", "Free", "MemoryBound", "fit_memory_bound", "main", "predicted_s", "usable", "with_free"]

OPS = ("elementwise", "softmax", "layer_norm")
_ROWS_EACH = 60
_SHORT_ROWS_EACH = 20
_SHORT_WEIGHT = 0.5
_MOST_WEIGHT = 1.5
_LONG_S = 100e-6
_EVALUATIONS = 30
_CALIBRATED_ROWS = 50
_LOSS_SCALE = 0.05


@dataclass(frozen=True, slots=True)
class MemoryBound:
    """The constants of all memory-bound kernels, and of calls."""

    memory: MemoryCosts = MEMORY
    streaming: StreamingCosts = STREAMING
    rowwise: RowwiseCosts = ROWWISE
    dispatch: DispatchCosts = DISPATCH


@dataclass(frozen=True, slots=True)
class Free:
    """What is fitted, from round figures by hand: a fit to the same table ends at the same place."""

    early_share: float = 0.8
    late_share: float = 0.95
    turnaround: float = 0.05
    pow_slots: float = 37.0
    warp_share: float = 0.95
    warp_slots: float = 20.0
    softmax_slots: float = 40.0
    reuse_share: float = 0.7
    reuse_slope: float = 4.0
    load_s: float = 0.5e-6
    softmax_row_s: float = 5e-6
    norm_row_s: float = 3e-6
    amd_wait: float = 2.0
    isolated_elementwise_s: float = 15e-6
    isolated_softmax_s: float = 20e-6
    isolated_norm_s: float = 35e-6
    isolated_end_s: float = 12e-6


BOUNDS = {field.name: (0.3 * field.default, 3.0 * field.default) for field in fields(Free)} | {  # type: ignore[operator]
    "early_share": (0.5, 1.0),
    "late_share": (0.7, 1.0),
    "warp_share": (0.7, 1.0),
}


def with_free(free: Free, base: MemoryBound | None = None) -> MemoryBound:
    """Return *base* (the constants in use) with those of *free* in their places."""
    values = asdict(free)

    def placed(costs: Any) -> Any:
        mine = {field.name: values[field.name] for field in fields(costs) if field.name in values}
        return replace(costs, **mine)

    groups = base or MemoryBound()
    return MemoryBound(*(placed(getattr(groups, field.name)) for field in fields(groups)))


def predicted_s(row: Measured, costs: MemoryBound) -> float:
    """Return the predicted seconds of *row*."""
    query, kernels_s = row.query, 0.0
    for kernel in lower_operator(query.operator, query.phase, query.precision):
        if isinstance(kernel, Streaming):
            kernels_s += streaming_cost(row.gpu, kernel, costs.streaming, costs.memory).time_s
        elif isinstance(kernel, Rowwise):
            kernels_s += rowwise_cost(row.gpu, kernel, costs.rowwise, costs.memory).time_s
    if not query.includes_dispatch:
        return kernels_s
    return isolated_time(row.gpu, query.operator, query.phase, kernels_s, costs.dispatch)


def fit_memory_bound(rows: Sequence[Measured], short: Sequence[Measured] = ()) -> Free:
    """Return what fits *rows*, and *short* rows at half their weight.

    Short rows of AMD's GPUs are left out: the one host issued in half the time of the others.
    """
    issued = [row for row in short if row.gpu.vendor == "nvidia"]
    weighted = _by_operator(rows, _ROWS_EACH, 1.0) + _by_operator(issued, _SHORT_ROWS_EACH, _SHORT_WEIGHT)

    def log_errors(free: Free) -> list[float]:
        costs = with_free(free)
        return [weight * math.log(predicted_s(row, costs) / row.time_s) for row, weight in weighted]

    found = fit_constants(Free(), BOUNDS, log_errors, loss_scale=_LOSS_SCALE, max_evaluations=_EVALUATIONS)
    return found.constants


def _by_operator(rows: Sequence[Measured], most: int, weight: float) -> list[tuple[Measured, float]]:
    """Return at most *most* rows of each operator on each device, with weights: few rows count more each."""
    found = []
    for op in OPS:
        some = balanced([row for row in rows if row.query.op == op], most)
        count = Counter((row.query.device, row.query.precision) for row in some)
        for row in some:
            few = math.sqrt(most / count[row.query.device, row.query.precision])
            found.append((row, weight * min(few, _MOST_WEIGHT)))
    return found


def _predictor(free: Free) -> Predict:
    costs = with_free(free)
    return lambda row: predicted_s(row, costs)


def usable(row: Measured) -> bool:
    """Return whether *row* was measured alone; LLMCompass's short ones show the floor of another clock."""
    return row.dataset == "neusight_ops" or (row.dataset == "llmcompass_ops" and row.time_s > _LONG_S)


def _alone(file: str, grades: str) -> list[Measured]:
    return [row for row in read_measured(file, grades=grades, ops=OPS) if usable(row)]


def _after_calibration(rows: Sequence[Measured], by_device: Mapping[str, Predict]) -> list[str]:
    factors: dict[str, Predict] = {}
    rest: list[Measured] = []
    for device, predict in by_device.items():
        mine = [row for row in rows if row.query.device == device]
        if len(mine) > _CALIBRATED_ROWS:
            factors[device], left = calibrated(mine, predict)
            rest += left
    return error_lines(rest, lambda row: factors[row.query.device])


def main(argv: Sequence[str]) -> None:
    """Print the constants, and the errors in sample, of each device left out, and after a calibration."""
    rows, short, judged = _alone(argv[0], "AB"), _alone(argv[0], "C"), _alone(argv[0], "A")
    found = fit_memory_bound(rows, short)
    for name, value in asdict(found).items():
        print(f"    {name}: float = {value:.3g}")  # noqa: T201
    for op in OPS:
        mine = [row for row in judged if row.query.op == op]
        print("\n".join(["", f"{op}, in sample", *error_lines(mine, lambda _: _predictor(found))]))  # noqa: T201
    if "--in-sample" in argv:
        return

    def fit(kept: Sequence[Measured]) -> Free:
        devices = {row.query.device for row in kept}
        return fit_memory_bound(kept, [row for row in short if row.query.device in devices])

    by_device = {device: _predictor(free) for device, free in left_out(rows, fit).items()}
    inside = [r for r in read_measured(argv[0], grades="B", ops=OPS) if r.dataset == "neusight_inmodel_ops"]
    for op in OPS:
        mine = [row for row in judged if row.query.op == op]
        lines = error_lines(mine, lambda row: by_device[row.query.device])
        print("\n".join(["", f"{op}, device left out", *lines]))  # noqa: T201
        lines = _after_calibration(mine, by_device)
        print("\n".join(["", f"{op}, device left out, then one factor from 50 of its rows", *lines]))  # noqa: T201
        within = [row for row in inside if row.query.op == op]
        lines = error_lines(within, lambda row: by_device.get(row.query.device, _predictor(found)))
        print("\n".join(["", f"{op} inside networks, device left out", *lines]))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
