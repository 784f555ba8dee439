"""Elementwise passes over memory.

A pass takes the time of its bytes or of its arithmetic, whichever is longer.  Arithmetic is counted in issue slots of a
lane: the instructions to which the compiler translates the function in fp32, including integer ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from simulator.constants import constants
from simulator.devices.cost import Bound, KernelCost
from simulator.devices.gpu.gpu import Gpu
from simulator.devices.gpu.lanes import compute_time
from simulator.devices.gpu.memory import MemoryCosts, memory_time
from simulator.devices.kernels import Streaming


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
