"""Reductions over rows: softmax, normalisation, sums."""

from __future__ import annotations

from simulator.devices.cost import KernelCost
from simulator.devices.device import Gpu
from simulator.devices.kernels import Rowwise
from simulator.devices.roofline import roofline_cost

__all__ = ["rowwise_cost"]


def rowwise_cost(gpu: Gpu, kernel: Rowwise) -> KernelCost:
    """Return the cost of *kernel* on *gpu*."""
    return roofline_cost(gpu, kernel)
