"""Products of matrices."""

from __future__ import annotations

from simulator.devices.cost import KernelCost
from simulator.devices.device import Gpu
from simulator.devices.kernels import Gemm
from simulator.devices.memory import achieved_bandwidth_Bps

__all__ = ["gemm_cost"]


def gemm_cost(gpu: Gpu, kernel: Gemm) -> KernelCost:
    """Return the cost of a product of matrices (roofline)."""
    compute_s = kernel.flop / gpu.peak(kernel.precision)
    memory_s = kernel.bytes / achieved_bandwidth_Bps(gpu)
    bound = "compute" if compute_s > memory_s else "memory"
    return KernelCost(max(compute_s, memory_s), bound, kernel.flop, kernel.bytes)
