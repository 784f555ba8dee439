"""Products of matrices."""

from __future__ import annotations

from simulator.devices.cost import KernelCost
from simulator.devices.device import Gpu
from simulator.devices.kernels import Gemm
from simulator.devices.roofline import roofline_cost

__all__ = ["gemm_cost"]


def gemm_cost(gpu: Gpu, kernel: Gemm) -> KernelCost:
    """Return the cost of *kernel* on *gpu*."""
    return roofline_cost(gpu, kernel)
