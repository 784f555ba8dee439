"""Embeddings: rows picked from a table, and added into its gradient."""

from __future__ import annotations

from simulator.devices.cost import KernelCost
from simulator.devices.device import Gpu
from simulator.devices.kernels import Gather
from simulator.devices.roofline import roofline_cost

__all__ = ["gather_cost"]


def gather_cost(gpu: Gpu, kernel: Gather) -> KernelCost:
    """Return the cost of *kernel* on *gpu*."""
    return roofline_cost(gpu, kernel)
