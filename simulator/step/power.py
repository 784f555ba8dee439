"""The power that a step's products draw: what its other kernels leave of the board's limit is theirs."""

from __future__ import annotations

from collections.abc import Iterable

from simulator.devices import KernelCost
from simulator.devices.gpu import Gpu
from simulator.devices.gpu.rates import PowerCosts
from simulator.devices.predict import drawing_device


def budgeted(device: Gpu, costs: Iterable[KernelCost]) -> Gpu:
    """Return *device* as it runs products in a step of *costs*, which are those at the board's limit.

    The limiter holds the mean of some milliseconds.  Kernels that wait for memory leave power, which products draw
    beyond the limit, up to that of a burst: with t seconds of products at the limit and s of others, they draw
    1 / (1 - (1 - w) s / t) of it, where w is the power of the others.
    """
    products_s = others_s = 0.0
    for cost in costs:
        if cost.bound == "compute":
            products_s += cost.time_s
        else:
            others_s += cost.time_s
    spent = products_s - (1.0 - device.constants(PowerCosts).waiting_share) * others_s
    share = min(products_s / spent, device.traits.burst) if spent > 0.0 else device.traits.burst
    return drawing_device(device, round(share, 2))
