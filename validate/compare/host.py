"""The host's time per call, from ``launch.csv`` and from host-bound steps."""

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

LAUNCH = "launch.csv"
_PLAIN = ("relu", "gelu", "softmax", "dropout", "max_pool", "layer_norm")  # no host work beyond the call
_BESIDES = {"linear": "product_s", "conv2d": "convolution_s", "batch_norm": "batch_norm_s", "lstm": "recurrent_s"}
_PARAMETERS = 64  # parameters of the measured optimisers
_WORST_KNOWN = 0.25  # rows with a larger relative half-width of the interval are ignored
_TWO = 2  # parameters of a layer norm
# Standard deviations of logarithms: of a host's speed before any step is measured, and of a well predicted step time.
_PRIOR, _SCATTER = 0.5, 0.05
_FURTHEST = math.log(8.0)
_FINE = 1e-3  # precision of the scale's logarithm


def host_seconds(folder: Folder) -> dict[str, float]:
    """Return the dispatch constants measured in ``launch.csv`` of *folder*, in seconds; empty if there are none.

    The forward constant is the median over plain layers; those of products, convolutions, ... are the time of such a
    layer beyond it.  The backward constant is the time of forward and backward pass minus forward alone.
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
    """Return the factor on host times that best fits *steps*: pairs of a prediction by scale and a measured time, in s.

    It minimises a soft L1 loss of log(predicted / measured) with a prior at 1, by a grid and a golden-section search.
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
    """Return all dispatch constants in seconds: *measured* ones, else shared ones, times *scale*.

    Constants of isolated calls are multiplied by *isolated* instead.
    """
    constants = {**host_constants(), **{name: getattr(DEFAULT(TimingCosts), name) for name in ISOLATED}, **measured}
    return {
        name: float(f"{value * (isolated if name.startswith('isolated_') else scale):.4g}")
        for name, value in constants.items()
    }
