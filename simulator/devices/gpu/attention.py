"""Attention in one kernel: FlashAttention on matrix units, a memory-efficient kernel on fp32 lanes.

A block keeps a tile of queries on the chip and goes through the keys; the scores never leave the SM.  Its
products run at a share of the peak that depends on the generation and on the head's size, and between them
exponentials are taken, of which an SM does 16 in a clock.  FlashAttention 2 computes both in turns; what
overlaps is what another block on the SM has to do meanwhile.  Backward computes five products for two, and adds
into the queries' gradient by atomic additions.

Dao, "FlashAttention-2", 2023, figures 4 to 7 (A100, and H100 with the same kernel); Shah et al.,
"FlashAttention-3", 2024, figures 5 and 6 (H100).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from simulator.devices.cost import KernelCost, bound_of
from simulator.devices.gpu.clock import sustained_clock
from simulator.devices.gpu.gpu import Gpu
from simulator.devices.gpu.memory import memory_time
from simulator.devices.gpu.rates import compute_rate, tensor_rate
from simulator.devices.kernels import FusedAttention
from simulator.workload.precision import ELEMENT_BYTES

__all__ = ["ATTENTION", "AttentionCosts", "attention_cost"]

_ROWS = 128  # of a block
_MANY_WAVES = 4  # beyond so many, blocks of unlike length fill the last


@dataclass(frozen=True, slots=True)
class AttentionCosts:
    """Shares of the peak, from published rates (see the module); none is fitted to a table of measurements."""

    forward: float = 0.8  # products alone; with exponentials 200 to 220 TFLOP/s of 312 on A100, heads of 128
    backward: float = 0.64  # 170 to 190 of 312
    hopper_forward: float = 0.46  # FlashAttention 2 issues Ampere's instructions: 350 to 400 of 989
    hopper_backward: float = 0.35  # 280 to 330
    early: float = 0.6  # of the above: Volta and Turing, whose kernels copy through registers (xFormers)
    lanes: float = 0.5  # of fp32 lanes: the memory-efficient kernel of PyTorch
    amd: float = 0.55  # of the above: composable-kernel versions, 40 % of MI250's peak
    head_half: float = 16.0  # a head of so many columns would reach half of what an endless one does
    exponentials_per_clock: float = 16.0  # of an SM (CUDA programming guide, arithmetic instructions)
    exposed: float = 0.5  # of the exponentials' time, what no other block's products hide
    prologue_keys: float = 48.0  # what starting and ending a block costs, as keys to go through
    kernel_s: float = 6e-6
    backward_kernels_s: float = 8e-6  # besides: rows' sums before it, a conversion after it


ATTENTION = AttentionCosts()
_REFERENCE_HEAD = 128


def attention_cost(gpu: Gpu, kernel: FusedAttention, costs: AttentionCosts = ATTENTION) -> KernelCost:
    """Return the cost of *kernel* on *gpu*.

    Raises
    ------
    InputError
        Where the device has no figure for the kernel's precision.

    """
    forward = kernel.direction == "fwd"
    idle = _excess(gpu, kernel, costs)
    head = kernel.head_size
    share = head / (head + costs.head_half) * (_REFERENCE_HEAD + costs.head_half) / _REFERENCE_HEAD
    rate, detail = _rate(gpu, kernel, costs)
    products_s = idle * kernel.flop / (rate * min(1.0, share))
    scores = kernel.flop / (4 if forward else 10) / head
    clock_Hz = sustained_clock(gpu, kernel.precision)
    exponentials_s = idle * scores / (gpu.sm_count * costs.exponentials_per_clock * clock_Hz)
    compute_s = products_s + costs.exposed * exponentials_s
    read_bytes, written_bytes = _traffic(kernel)
    memory_s = memory_time(gpu, read_bytes, written_bytes)
    fixed_s = costs.kernel_s + (0.0 if forward else costs.backward_kernels_s)
    time_s = max(compute_s, memory_s) + fixed_s
    bound = bound_of(time_s, compute_s, memory_s)
    return KernelCost(time_s, bound, float(kernel.flop), read_bytes + written_bytes, detail)


def _rate(gpu: Gpu, kernel: FusedAttention, costs: AttentionCosts) -> tuple[float, str]:
    """Return the rate of the products, in FLOP/s, with heads of 128, and which kernel it is."""
    tensor = tensor_rate(gpu, kernel.precision)
    if not tensor:
        return compute_rate(gpu, "fp32") * costs.lanes, "memory-efficient"
    forward, operands = kernel.direction == "fwd", gpu.traits.operands
    if operands == "warps":
        share = costs.hopper_forward if forward else costs.hopper_backward
    else:
        share = costs.forward if forward else costs.backward
    if gpu.traits.kernels == "amd":
        share *= costs.amd
    elif operands == "registers":
        share *= costs.early
    return tensor * share, "flash"


def _excess(gpu: Gpu, kernel: FusedAttention, costs: AttentionCosts) -> float:
    """Return by how much the time exceeds that of the FLOPs spread evenly over all SMs.

    Blocks own rows of queries (backward: of keys), the last of them part-filled, and so is the last wave of
    blocks; each starts and ends with work that nothing overlaps; on the diagonal of a mask they compute all.
    """
    owned, passed = kernel.query_length, kernel.key_length
    if kernel.direction == "bwd":
        owned, passed = passed, owned
    pairs = kernel.batch * kernel.heads
    blocks = pairs * ceil(owned / _ROWS)
    rows = blocks * _ROWS / (pairs * owned)
    waves = ceil(blocks / gpu.sm_count) * gpu.sm_count / blocks if blocks < _MANY_WAVES * gpu.sm_count else 1.0
    masked = kernel.causal and kernel.query_length == kernel.key_length
    started = (costs.prologue_keys + (_ROWS / 2 if masked else 0.0)) / (passed / 2 if masked else passed)
    return rows * waves * (1.0 + started)


def _traffic(kernel: FusedAttention) -> tuple[float, float]:
    """Return the bytes read and written: backward, gradients too, and that of the queries added up in fp32."""
    element = ELEMENT_BYTES[kernel.precision]
    queries = kernel.batch * kernel.heads * kernel.query_length * kernel.head_size
    keys = 2 * kernel.batch * kernel.kv_heads * kernel.key_length * kernel.head_size
    if kernel.direction == "fwd":
        return float(element * (queries + keys)), float(element * queries)
    return float(element * (3 * queries + keys) + 4 * queries), float(element * (queries + keys) + 4 * queries)
