"""The power that a step's products draw: what its other kernels leave of the board's limit is theirs."""

from __future__ import annotations

from collections.abc import Iterable

from simulator.devices import KernelCost
from simulator.devices.gpu import Gpu
from simulator.devices.gpu.rates import streaming_share
from simulator.devices.predict import drawing_device


def budgeted(device: Gpu, costs: Iterable[KernelCost]) -> Gpu:
    """Return *device* as it runs products in a step of *costs*, which are those at the board's limit.

    The limiter holds the mean of some milliseconds.  Kernels that wait for memory leave power, which products draw
    beyond the limit, up to that of a burst.  Both need energy beyond an idle board's, e a product and w a second of the
    others, and of t + s seconds at p each e / p + s w / p are gone: with t seconds of products at the limit and s of
    others, products draw 1 / (1 - (1 - w / p) s / t) of it.
    """
    products_s = others_s = 0.0
    for cost in costs:
        if cost.bound == "compute":
            products_s += cost.time_s
        else:
            others_s += cost.time_s
    spent = products_s - (1.0 - streaming_share(device)) * others_s
    share = min(products_s / spent, device.burst) if spent > 0.0 else device.burst
    return drawing_device(device, round(share, 2))
