"""Passes over memory, element by element."""

from __future__ import annotations

from simulator.devices.cost import KernelCost
from simulator.devices.device import Gpu
from simulator.devices.kernels import Streaming
from simulator.devices.roofline import roofline_cost

__all__ = ["streaming_cost"]


def streaming_cost(gpu: Gpu, kernel: Streaming) -> KernelCost:
    """Return the cost of *kernel* on *gpu*."""
    return roofline_cost(gpu, kernel)
