"""Embeddings: rows picked from a table, and added into its gradient."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.devices.cost import KernelCost
from simulator.devices.gpu.gpu import Gpu
from simulator.devices.gpu.lanes import compute_time
from simulator.devices.gpu.memory import MEMORY, MemoryCosts, memory_time
from simulator.devices.kernels import Gather
from simulator.workload.precision import ELEMENT_BYTES

__all__ = ["GATHER", "GatherCosts", "gather_cost"]

INDEX_BYTES = 8
FEW_ROWS = 3072  # up to here PyTorch adds gradients row by row; beyond, it sorts the indices first


@dataclass(frozen=True, slots=True)
class GatherCosts:
    """Constants of embeddings, the same for all GPUs."""

    share: float = 0.65  # of a long stream's bandwidth, rows in no order
    slots: float = 90.0  # lane slots an element: the place of each is divided out
    few_s: float = 25e-6  # gradients of few rows: blocks look through all indices for theirs
    sort_s: float = 180e-6  # the kernels that sort, count and scan many indices


GATHER = GatherCosts()


def gather_cost(gpu: Gpu, kernel: Gather, costs: GatherCosts = GATHER, memory: MemoryCosts = MEMORY) -> KernelCost:
    """Return the cost of *kernel* on *gpu*."""
    size = ELEMENT_BYTES[kernel.precision]
    elements = kernel.rows * kernel.cols
    indices = float(INDEX_BYTES * kernel.rows)
    picked_s = memory_time(gpu, elements * size + indices, float(elements * size), memory) / costs.share
    time_s = memory.start_s + max(picked_s, compute_time(gpu, elements, costs.slots))
    if kernel.direction == "fwd":
        return KernelCost(time_s, "memory", kernel.flop, kernel.bytes)
    filled_s = memory_time(gpu, 0.0, float(kernel.vocabulary * kernel.cols * size), memory)
    time_s += filled_s + (costs.few_s if kernel.rows <= FEW_ROWS else costs.sort_s)
    return KernelCost(time_s, "memory", kernel.flop, kernel.bytes, "rows" if kernel.rows <= FEW_ROWS else "sort")
