"""Recurrent layers."""

from __future__ import annotations

from simulator.devices.cost import KernelCost
from simulator.devices.device import Gpu
from simulator.devices.kernels import Recurrence
from simulator.devices.roofline import roofline_cost

__all__ = ["recurrence_cost"]


def recurrence_cost(gpu: Gpu, kernel: Recurrence) -> KernelCost:
    """Return the cost of *kernel* on *gpu*."""
    return roofline_cost(gpu, kernel)
