"""Embeddings: rows gathered from a table, and scattered into its gradient."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.constants import constants
from simulator.devices.cost import KernelCost
from simulator.devices.gpu.gpu import Gpu
from simulator.devices.gpu.lanes import compute_time
from simulator.devices.gpu.memory import MemoryCosts, memory_time
from simulator.devices.kernels import Gather
from simulator.workload.precision import ELEMENT_BYTES, INDEX_BYTES

FEW_ROWS = 3072  # up to here PyTorch adds gradients row by row; beyond, it sorts the indices first


@constants("gather")
@dataclass(frozen=True, slots=True)
class GatherCosts:
    """Constants of embeddings, the same for all GPUs."""

    share: float
    slots: float
    few_s: float
    sort_s: float


def gather_cost(gpu: Gpu, kernel: Gather) -> KernelCost:
    """Return the cost of *kernel* on *gpu*."""
    costs = gpu.constants(GatherCosts)
    size = ELEMENT_BYTES[kernel.precision]
    elements = kernel.rows * kernel.cols
    indices = float(INDEX_BYTES * kernel.rows)
    picked_s = memory_time(gpu, elements * size + indices, float(elements * size)) / costs.share
    time_s = gpu.constants(MemoryCosts).start_s + max(picked_s, compute_time(gpu, elements, costs.slots))
    if kernel.direction == "fwd":
        return KernelCost(time_s, "memory", kernel.flop, kernel.bytes)
    filled_s = memory_time(gpu, 0.0, float(kernel.vocabulary * kernel.cols * size))
    time_s += filled_s + (costs.few_s if kernel.rows <= FEW_ROWS else costs.sort_s)
    return KernelCost(time_s, "memory", kernel.flop, kernel.bytes, "rows" if kernel.rows <= FEW_ROWS else "sort")
