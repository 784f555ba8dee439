"""Pooling of images."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.constants import constants
from simulator.devices.cost import Bound, KernelCost
from simulator.devices.gpu.gpu import Gpu
from simulator.devices.gpu.lanes import compute_time
from simulator.devices.gpu.memory import MemoryCosts, memory_time
from simulator.devices.kernels import Pooling
from simulator.workload.precision import ELEMENT_BYTES, INDEX_BYTES


@constants("pooling")
@dataclass(frozen=True, slots=True)
class PoolingCosts:
    """Constants of pooling, the same for all GPUs."""

    share: float
    place_slots: float
    max_place_slots: float
    window_slots: float


def pooling_cost(gpu: Gpu, kernel: Pooling) -> KernelCost:
    """Return the cost of *kernel* on *gpu*.

    Forward, every output reads its window.  Backward, every input reads the windows that contain it: over the whole
    image, as many elements as forward.
    """
    costs = gpu.constants(PoolingCosts)
    size = ELEMENT_BYTES[kernel.precision]
    images, reduced = float(kernel.input_elements * size), float(kernel.output_elements * size)
    index = float(INDEX_BYTES * kernel.output_elements) if kernel.kind == "max" else 0.0
    if kernel.direction == "fwd":
        memory_s = memory_time(gpu, images, reduced + index)
        written = kernel.output_elements
    else:
        memory_s = memory_time(gpu, reduced + index, images)
        written = kernel.input_elements
    place_slots = costs.max_place_slots if kernel.kind == "max" else costs.place_slots
    slots = written * place_slots + kernel.output_elements * kernel.window * costs.window_slots
    compute_s = compute_time(gpu, slots, 1.0)
    longer_s = max(memory_s / costs.share, compute_s)
    bound: Bound = "memory" if memory_s / costs.share >= compute_s else "compute"
    return KernelCost(gpu.constants(MemoryCosts).start_s + longer_s, bound, kernel.flop, kernel.bytes)
