"""Pooling of images."""

from __future__ import annotations

from simulator.devices.cost import KernelCost
from simulator.devices.device import Gpu
from simulator.devices.kernels import Pooling
from simulator.devices.roofline import roofline_cost

__all__ = ["pooling_cost"]


def pooling_cost(gpu: Gpu, kernel: Pooling) -> KernelCost:
    """Return the cost of *kernel* on *gpu*."""
    return roofline_cost(gpu, kernel)
