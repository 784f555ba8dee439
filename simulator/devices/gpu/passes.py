"""Passes over memory: functions of each element, pooling, and rows gathered from a table.

A pass takes the time of its bytes or of its arithmetic, whichever is longer.  Arithmetic is counted in issue slots of a
lane: the instructions to which the compiler translates the function in fp32, including integer ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from simulator.constants import constants
from simulator.devices.cost import Bound, KernelCost
from simulator.devices.gpu.gpu import Gpu
from simulator.devices.gpu.memory import MemoryCosts, memory_time
from simulator.records import dataclass
from simulator.workload.kernels import Streaming
from simulator.workload.operators import Gather, Pooling
from simulator.workload.precision import ELEMENT_BYTES, INDEX_BYTES


@constants("lanes")
@dataclass(frozen=True, slots=True)
class LaneCosts:
    """Constants of lanes, the same for all GPUs."""

    shared_slots: float


def compute_time(gpu: Gpu, elements: float, slots: float) -> float:
    """Return the seconds that all lanes together need for *slots* instructions on each of *elements*."""
    if gpu.traits.integers == "shared":
        slots *= gpu.constants(LaneCosts).shared_slots
    return elements * slots / (gpu.sm_count * gpu.lanes_per_sm * gpu.light_clock_Hz)


@constants("streaming")
@dataclass(frozen=True, slots=True)
class StreamingCosts:
    """Constants of passes, the same for all GPUs."""

    PARTS: ClassVar = {"slots": dict}
    base_slots: float
    pow_slots: float
    drawn_slots: float
    philox_products: float
    product_slots: float
    amd_product_slots: float
    transposed_share: float
    slots: Mapping[str, float]


_DRAWN = ("dropout", "normal", "uniform")  # random numbers from Philox, each drawn independently


def streaming_cost(gpu: Gpu, kernel: Streaming) -> KernelCost:
    """Return the cost of *kernel* on *gpu*."""
    costs, start_s = gpu.constants(StreamingCosts), gpu.constants(MemoryCosts).start_s
    in_place = kernel.function.endswith("_inplace")
    working_set = max(kernel.read_bytes, kernel.written_bytes) if in_place else kernel.bytes
    memory_s = memory_time(gpu, kernel.read_bytes, kernel.written_bytes, working_set)
    if kernel.transposed:
        memory_s /= costs.transposed_share
    slots = costs.base_slots + _slots(kernel.function, costs)
    if kernel.function.startswith(_DRAWN) and not kernel.function.endswith("_bwd"):
        slots += costs.drawn_slots + costs.philox_products * (
            costs.amd_product_slots if gpu.vendor == "amd" else costs.product_slots
        )
    compute_s = compute_time(gpu, kernel.elements, slots)
    longer_s = max(memory_s, compute_s)
    bound: Bound = "latency" if longer_s < start_s else "compute" if compute_s > memory_s else "memory"
    return KernelCost(start_s + longer_s, bound, kernel.flop, kernel.bytes)


def _slots(function: str, costs: StreamingCosts) -> float:
    if function.startswith("pow"):
        return costs.pow_slots
    return costs.slots.get(function, 0.0) or costs.slots.get(function.removesuffix("_scalar"), 0.0)


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
