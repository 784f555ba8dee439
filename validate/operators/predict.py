"""The time of a measured operator: its kernels, and what a single call waits for where the measurement holds that."""

from __future__ import annotations

from simulator.devices.dispatch import isolated_time
from simulator.devices.gpu.gpu import Gpu
from simulator.devices.gpu.roofline import roofline_cost
from simulator.devices.lowering import lower_operator
from simulator.devices.predict import operator_costs
from simulator.errors import InputError, one_line
from validate.operators.query import OperatorQuery
from validate.score.query import NotScored

__all__ = ["predict_operator", "roofline_operator"]


def predict_operator(gpu: Gpu, query: OperatorQuery) -> float:
    """Return the predicted seconds of *query* on *gpu*; raises NotScored where the device cannot do it."""
    try:
        costs = operator_costs(gpu, query.operator, query.phase, query.precision)
    except (InputError, TypeError) as error:
        raise NotScored(one_line(error)) from None
    if not costs:
        raise NotScored(f"{query.op} has no kernels in phase {query.phase}")
    kernels_s = sum(cost.time_s for cost in costs)
    if not query.includes_dispatch:
        return kernels_s
    return isolated_time(gpu, query.operator, query.phase, kernels_s)


def roofline_operator(gpu: Gpu, query: OperatorQuery) -> float:
    """Return the roofline of the kernels of *query* at data sheet rates; raises as :func:`predict_operator`."""
    try:
        kernels = lower_operator(query.operator, query.phase, query.precision)
        time_s = sum(roofline_cost(gpu, kernel).time_s for kernel in kernels)
    except (InputError, TypeError) as error:
        raise NotScored(one_line(error)) from None
    if not time_s:
        raise NotScored("the roofline is zero")
    return time_s
