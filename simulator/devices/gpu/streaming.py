"""Passes over memory, element by element.

A pass takes as long as its bytes or as its arithmetic, whichever is more.  Arithmetic counts in issue
slots of a lane: instructions as the compiler makes of the function in fp32, integer ones included.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.devices.cost import Bound, KernelCost
from simulator.devices.gpu.gpu import Gpu
from simulator.devices.gpu.lanes import compute_time
from simulator.devices.gpu.memory import MEMORY, MemoryCosts, memory_time
from simulator.devices.kernels import Streaming

__all__ = ["STREAMING", "StreamingCosts", "streaming_cost"]

# Issue slots of one element, beyond loads and stores; estimates from the functions' usual
# implementations (polynomial and reciprocal steps), but for pow, which a measurement shows (below).
_SLOTS = {
    "tanh": 12.0,
    "gelu": 18.0,
    "gelu_bwd": 25.0,
    "dropout": 87.0,  # a fourth of Philox's ten rounds, and the comparison; as V100, MI100 and MI250 show
    "div": 8.0,
    "sigmoid": 10.0,
    "silu": 12.0,
    "silu_bwd": 16.0,
    "exp": 6.0,
    "sqrt": 6.0,
    "adam_step": 20.0,
}


@dataclass(frozen=True, slots=True)
class StreamingCosts:
    """Constants of passes, the same for all GPUs."""

    base_slots: float = 5.0  # addresses, bounds, load and store of one element, by whole vectors
    pow_slots: float = 36.8  # the one function that P100's 64 lanes do not hide
    transposed_share: float = 0.75  # of bandwidth, where one side is not in the order of memory


STREAMING = StreamingCosts()


def streaming_cost(
    gpu: Gpu, kernel: Streaming, costs: StreamingCosts = STREAMING, memory: MemoryCosts = MEMORY
) -> KernelCost:
    """Return the cost of *kernel* on *gpu*."""
    in_place = kernel.function.endswith("_inplace")
    working_set = max(kernel.read_bytes, kernel.written_bytes) if in_place else kernel.bytes
    memory_s = memory_time(gpu, kernel.read_bytes, kernel.written_bytes, memory, working_set)
    if kernel.transposed:
        memory_s /= costs.transposed_share
    slots = costs.base_slots + _slots(kernel.function, costs)
    compute_s = compute_time(gpu, kernel.elements, slots)
    longer_s = max(memory_s, compute_s)
    bound: Bound = "latency" if longer_s < memory.start_s else "compute" if compute_s > memory_s else "memory"
    return KernelCost(memory.start_s + longer_s, bound, kernel.flop, kernel.bytes)


def _slots(function: str, costs: StreamingCosts) -> float:
    if function.startswith("pow"):
        return costs.pow_slots
    return _SLOTS.get(function, 0.0) or _SLOTS.get(function.removesuffix("_scalar"), 0.0)
