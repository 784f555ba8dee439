"""Convolutions, by the algorithm that a library takes."""

from __future__ import annotations

from simulator.devices.cost import KernelCost
from simulator.devices.device import Gpu
from simulator.devices.kernels import Convolution
from simulator.devices.roofline import roofline_cost

__all__ = ["convolution_cost"]


def convolution_cost(gpu: Gpu, kernel: Convolution) -> KernelCost:
    """Return the cost of *kernel* on *gpu*."""
    return roofline_cost(gpu, kernel)
