"""Attention in one kernel."""

from __future__ import annotations

from simulator.devices.cost import KernelCost
from simulator.devices.device import Gpu
from simulator.devices.kernels import FusedAttention
from simulator.devices.roofline import roofline_cost

__all__ = ["attention_cost"]


def attention_cost(gpu: Gpu, kernel: FusedAttention) -> KernelCost:
    """Return the cost of *kernel* on *gpu*."""
    return roofline_cost(gpu, kernel)
