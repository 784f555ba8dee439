"""The roofline: the peak rates of the data sheet and nothing else; what a model must beat.

Williams, Waterman, Patterson, "Roofline: an insightful visual performance model", 2009.
"""

from __future__ import annotations

from simulator.devices.cost import KernelCost
from simulator.devices.gpu.gpu import Gpu
from simulator.devices.kernels import Kernel, Streaming

__all__ = ["roofline_cost"]


def roofline_cost(gpu: Gpu, kernel: Kernel) -> KernelCost:
    """Return the longer of FLOPs at the peak rate and bytes at the peak bandwidth."""
    compute_s = 0.0
    if kernel.flop and not isinstance(kernel, Streaming):
        compute_s = kernel.flop / gpu.peak(kernel.precision)
    memory_s = kernel.bytes / gpu.memory_bandwidth_Bps
    if compute_s > memory_s:
        return KernelCost(compute_s, "compute", kernel.flop, kernel.bytes)
    return KernelCost(memory_s, "memory", kernel.flop, kernel.bytes)
