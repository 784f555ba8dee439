"""What a host takes for its calls: from ``launch.csv``, and from steps that wait for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from simulator.api.calibrations import host_constants
from simulator.constants import DEFAULT
from simulator.questions.calibration import ISOLATED
from validate.compare.folder import Folder
from validate.kinds.timing import TimingCosts
from validate.tables.cells import figure

__all__ = ["host_seconds", "scale_of_steps", "scaled"]

LAUNCH = "launch.csv"
_PLAIN = ("relu", "gelu", "softmax", "dropout", "max_pool", "layer_norm")  # nothing but the call itself
_BESIDES = {"linear": "product_s", "conv2d": "convolution_s", "batch_norm": "batch_norm_s", "lstm": "recurrent_s"}
_PARAMETERS = 64  # of the measured optimisers
_WORST_KNOWN = 0.25  # half an interval beyond which a row says nothing
_TWO = 2  # parameters of a layer norm
# How far the speed of a host is from what is known of it before any step is seen: one standard deviation of the
# logarithm; and what a step that is predicted well scatters by.
_PRIOR, _SCATTER = 0.5, 0.05
_FURTHEST = math.log(8.0)
_FINE = 1e-3  # of the logarithm of the scale


def host_seconds(folder: Folder) -> dict[str, float]:
    """Return the constants of dispatch that ``launch.csv`` of *folder* shows; empty where it shows none.

    An operator forward is what plain layers take in the middle; a product, a convolution, ... what theirs take
    beyond it.  Backward is what a layer takes with its backward pass beyond forward alone.
    """
    table = folder.tables.get(LAUNCH)
    if table is None:
        return {}
    times: dict[str, float] = {}
    for record in table.rows:
        interval, time_s = figure(table.cell(record, "interval") or "0"), figure(table.cell(record, "time_s"))
        if interval is not None and interval <= _WORST_KNOWN and time_s is not None:
            times.setdefault(table.cell(record, "metric"), time_s)
    forward = {name: times.get(f"host time of {name}, forward, recorded", 0.0) for name in (*_PLAIN, *_BESIDES)}
    whole = {name: times.get(f"host time of {name}, forward and backward", 0.0) for name in (*_PLAIN, *_BESIDES)}
    found: dict[str, float] = {}
    plain = [forward[name] for name in _PLAIN if forward[name] > 0]
    if plain:
        found["forward_s"] = median(plain)
        for name, constant in _BESIDES.items():
            if forward[name] > 0:
                found[constant] = max(0.0, forward[name] - found["forward_s"])
    bare = [whole[name] - forward[name] for name in _PLAIN[:-1] if whole[name] > forward[name] > 0]
    if bare:
        found["backward_s"] = median(bare)
        norm_s = whole["layer_norm"] - forward["layer_norm"]
        if norm_s > 0:
            found["gradient_s"] = max(0.0, (norm_s - found["backward_s"]) / _TWO)
    update_s = times.get("host time of a step of SGD with momentum, foreach", 0.0)
    if update_s > 0:
        found["update_s"] = update_s / _PARAMETERS
    graph_s = times.get("host time of a graph of 1 kernel", 0.0)
    if graph_s > 0:
        found["graph_launch_s"] = graph_s
    return found


def scale_of_steps(steps: Sequence[tuple[Callable[[float], float], float]]) -> float:
    """Return by how much the host takes longer than said, from steps as predicted by that scale, and as measured.

    The least of soft errors of log(predicted / measured), drawn to 1; by golden section, as it has one valley
    where the errors of all steps have one.
    """

    def loss(x: float) -> float:
        misses = [math.log(predict(math.exp(x)) / measured_s) / _SCATTER for predict, measured_s in steps]
        return sum(2.0 * (math.sqrt(1.0 + miss * miss) - 1.0) for miss in misses) + (x / _PRIOR) ** 2

    grid = [_FURTHEST * i / 12 for i in range(-12, 13)]
    losses = [loss(x) for x in grid]
    best = min(range(len(grid)), key=lambda i: losses[i])
    low, high = grid[max(0, best - 1)], grid[min(len(grid) - 1, best + 1)]
    golden = (math.sqrt(5.0) - 1.0) / 2.0
    while high - low > _FINE:
        left, right = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, right) if loss(left) < loss(right) else (left, high)
    return math.exp((low + high) / 2)


def scaled(measured: Mapping[str, float], scale: float, isolated: float) -> dict[str, float]:
    """Return all constants of dispatch: as *measured* or shared, times *scale*; those of a call alone *isolated*."""
    constants = {**host_constants(), **{name: getattr(DEFAULT(TimingCosts), name) for name in ISOLATED}, **measured}
    return {
        name: float(f"{value * (isolated if name.startswith('isolated_') else scale):.4g}")
        for name, value in constants.items()
    }
