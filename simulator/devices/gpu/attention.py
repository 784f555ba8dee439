"""Attention in one kernel: FlashAttention on matrix units, a memory-efficient kernel on fp32 lanes.

A block keeps a tile of queries on chip and loops over the keys; the scores never leave the SM.  Each step multiplies
on matrix units and takes exponentials, of which an SM computes 16 per clock.  At a head size of 128 the exponentials
need a quarter of the products' clocks on an A100, half on an H100 and as many on a B200; other products hide about
half of them.  The scheduling of blocks on SMs is in :mod:`simulator.devices.gpu.attention_blocks`.

The kernel depends on the library, not on the device.  ``flash2``, FlashAttention 2, issues Ampere's instructions
(mma.sync) on every GPU; matrix units since Hopper run these at about half of their rate.  ``native`` is written for
the GPU's own generation: FlashAttention 3 and cuDNN 9 on Hopper; cuDNN, FlashInfer and TensorRT-LLM on Blackwell.  Up
to Ada the two are the same.  ``flash1``, FlashAttention 1, divides work among warps less well and takes twice as long
as ``flash2``.  The backward pass computes five products instead of two and accumulates the gradient of the queries
with atomic additions.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.constants import constants
from simulator.devices.cost import KernelCost, bound_of
from simulator.devices.gpu.attention_blocks import ROWS, Blocks, blocks_of, spread_over
from simulator.devices.gpu.clock import energy_time, working_clock
from simulator.devices.gpu.gpu import Gpu
from simulator.devices.gpu.memory import memory_time
from simulator.devices.gpu.rates import compute_rate, tensor_rate
from simulator.devices.kernels import FusedAttention
from simulator.workload.precision import ELEMENT_BYTES


@constants("attention")
@dataclass(frozen=True, slots=True)
class AttentionCosts:
    """Constants of attention, the same for all GPUs; ``alone`` and ``last`` apply to kernels that are not native."""

    products: float
    exponentials: float
    block_clocks: float
    exposed_memory: float
    alone: float
    last: float
    kernel_s: float
    backward_products: float
    synchronous_per_clock: float
    backward_kernels_s: float
    early: float
    first: float
    amd: float
    lanes: float
    exponentials_per_clock: float


def attention_cost(gpu: Gpu, kernel: FusedAttention) -> KernelCost:
    """Return the cost of *kernel* on *gpu*.

    Raises InputError where the device has no figure for the kernel's precision.
    """
    costs = gpu.constants(AttentionCosts)
    is_forward = kernel.direction == "fwd"
    is_native = kernel.library == "native" and gpu.traits.operands == "warps"
    has_high_tiles = is_native and gpu.traits.tensor_memory
    blocks = blocks_of(kernel, rows=2 * ROWS if has_high_tiles else ROWS, packs=is_native and not has_high_tiles)
    flop_per_clock, detail = _flop_per_clock(gpu, kernel, is_native, costs)
    scores = blocks.rows * blocks.columns
    flop = (4 if is_forward else 10) * scores * kernel.head_size
    step_clocks = flop / flop_per_clock + costs.exponentials * scores / costs.exponentials_per_clock
    if kernel.library == "flash1":
        step_clocks *= costs.first
    clocks = _clocks(gpu, blocks, step_clocks, is_native, costs)
    compute_s = clocks / working_clock(gpu, kernel.precision)
    if not detail.startswith("memory"):
        compute_s = max(compute_s, energy_time(gpu, kernel.precision, kernel.flop))
    read_bytes, written_bytes = _traffic(kernel)
    memory_s = memory_time(gpu, read_bytes, written_bytes)
    fixed_s = costs.kernel_s + (0.0 if is_forward else costs.backward_kernels_s)
    time_s = compute_s + costs.exposed_memory * memory_s + fixed_s
    bound = bound_of(time_s, compute_s, memory_s)
    return KernelCost(time_s, bound, float(kernel.flop), read_bytes + written_bytes, detail)


def _clocks(gpu: Gpu, blocks: Blocks, step_clocks: float, is_native: bool, costs: AttentionCosts) -> float:
    """Return the clocks until the last block ends.

    Native kernels start the longest blocks first, and one block keeps its SM busy: one of its warp groups multiplies
    while the other takes exponentials.
    """
    if is_native:
        return spread_over(blocks, gpu.sm_count, step_clocks, costs.block_clocks, alone=1.0, last=0.0)
    return spread_over(blocks, gpu.sm_count, step_clocks, costs.block_clocks, alone=costs.alone, last=costs.last)


def _flop_per_clock(gpu: Gpu, kernel: FusedAttention, is_native: bool, costs: AttentionCosts) -> tuple[float, str]:
    """Return the FLOPs per SM and clock of the matrix products, and the name of the kernel."""
    sm_clocks_per_s = gpu.sm_count * working_clock(gpu, kernel.precision)
    peak = tensor_rate(gpu, kernel.precision) / sm_clocks_per_s
    if not peak:
        return costs.lanes * compute_rate(gpu, "fp32") / sm_clocks_per_s, "memory-efficient"
    if gpu.traits.operands == "warps" and not is_native:
        peak = min(peak, costs.synchronous_per_clock)
    share = costs.products if kernel.direction == "fwd" else costs.backward_products
    if gpu.traits.kernels == "amd":
        share *= costs.amd
    elif gpu.traits.operands == "registers":
        share *= costs.early
    return peak * share, "flash, native" if is_native else "flash"


def _traffic(kernel: FusedAttention) -> tuple[float, float]:
    """Return the bytes read and written; backward includes gradients, with that of the queries accumulated in fp32."""
    element = ELEMENT_BYTES[kernel.precision]
    queries = kernel.batch * kernel.heads * kernel.query_length * kernel.head_size
    keys = 2 * kernel.batch * kernel.kv_heads * kernel.key_length * kernel.head_size
    if kernel.direction == "fwd":
        return float(element * (queries + keys)), float(element * queries)
    return float(element * (3 * queries + keys) + 4 * queries), float(element * (queries + keys) + 4 * queries)
