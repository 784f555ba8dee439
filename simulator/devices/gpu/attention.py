"""Attention in one kernel, on matrix units or fp32 lanes (docs/decisions/kernels.md)."""

from collections import Counter
from functools import lru_cache
from math import ceil

from simulator.devices import KernelCost, bound_of
from simulator.devices.gpu import Gpu
from simulator.devices.gpu.gemm import product_time
from simulator.devices.gpu.memory import achieved_bandwidth, memory_time
from simulator.devices.gpu.rates import compute_rate, energy_time, tensor_rate, working_clock
from simulator.records import dataclass
from simulator.workload.kernels import Gemm, Layout
from simulator.workload.operators import FusedAttention
from simulator.workload.precision import ELEMENT_BYTES

ROWS = 128
_EFFICIENT = "memory-efficient"  # PyTorch's kernel where FlashAttention does not run: before Ampere, and in fp32
_WIDE = ("fp32", "tf32")
_COLUMNS = 64
_BACKWARD_KERNELS = 3  # rows' sums before it, a conversion after it
_MOST_SEEN = 100_000  # blocks of windows that are looked at one by one
_GROUPS = 64  # blocks of one batch-head pair are grouped into at most this many lengths; more add no accuracy


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of ``rows`` by ``columns`` per step; ``lengths``: each length in steps, longest first, with its count."""

    rows: int
    columns: int
    lengths: tuple[tuple[float, float], ...]

    @property
    def count(self) -> float:
        """Number of blocks."""
        return sum(count for _, count in self.lengths)

    @property
    def steps(self) -> float:
        """Total steps of all blocks."""
        return sum(length * count for length, count in self.lengths)


@lru_cache(maxsize=4096)
def blocks_of(kernel: FusedAttention, *, rows: int = ROWS, packs: bool = False) -> Blocks:
    """Return the blocks of *kernel*; *packs*: the rows of all heads that share keys fill one tile (``pack_gqa``)."""
    owned, passed = kernel.query_length, kernel.key_length
    if kernel.direction == "bwd":
        owned, passed = passed, owned
    group = kernel.heads // kernel.kv_heads if packs and kernel.direction == "fwd" else 1
    pairs = kernel.batch * kernel.heads // group
    blocks = ceil(owned * group / rows)
    whole = float(ceil(passed / _COLUMNS))
    if not kernel.causal or kernel.query_length != kernel.key_length:
        return Blocks(rows, _COLUMNS, ((whole, float(pairs * blocks)),))
    if kernel.window:
        # Backward it is the other way round, from a block's first key to the last query that sees its last key: as many
        # tiles, in another order.
        seen_by: Counter[float] = Counter()
        alike, window = 1 + blocks // _MOST_SEEN, min(passed, kernel.window)
        for i in range(0, blocks, alike):
            first, end = max(0.0, i * (rows / group) + 1 - window), min((i + 1) * (rows / group), passed)
            seen_by[float(ceil(end / _COLUMNS) - int(first / _COLUMNS))] += min(alike, blocks - i)
        found = sorted(seen_by.items(), reverse=True)
        return Blocks(rows, _COLUMNS, tuple((length, float(pairs * n)) for length, n in found))
    groups = min(blocks, _GROUPS)
    step = blocks / groups
    lengths = []
    for i in reversed(range(groups)):
        seen = min((i * step + (step + 1.0) / 2.0) * rows / group, passed)  # by the middle block of the group
        lengths.append((min(whole, max(1.0, seen / _COLUMNS if step > 1.0 else ceil(seen / _COLUMNS))), pairs * step))
    return Blocks(rows, _COLUMNS, tuple(lengths))


def spread_over(
    blocks: Blocks, sms: int, step_clocks: float, block_clocks: float, *, alone: float, last: float
) -> float:
    """Return the clocks until the last block ends: a lower bound on any schedule, plus a wait at the end.

    - ``alone``: blocks that saturate an SM; fewer take as long as that many.
    - ``last``: the share of the longest block for which other SMs wait at the end, where it is not started first.
    """
    slots = sms * alone
    least, before = 0.0, 0.0
    for length, count in blocks.lengths:
        before += count
        clocks = alone * (length * step_clocks + block_clocks)
        least = max(least, ceil(before / slots) * clocks)
    even = (blocks.steps * step_clocks + blocks.count * block_clocks) / sms
    longest = blocks.lengths[0][0] * step_clocks + block_clocks
    waiting = last * longest * min(1.0, max(0.0, blocks.count / sms - 1.0))
    return max(least, even + waiting)


def attention_cost(gpu: Gpu, kernel: FusedAttention) -> KernelCost:
    """Return the cost of *kernel* on *gpu*; raises InputError where the device has no figure for its precision."""
    costs = gpu.constants["attention"]
    if kernel.precision in _WIDE and kernel.kv_heads != kernel.heads:
        return _unfused(gpu, kernel)
    is_forward = kernel.direction == "fwd"
    is_native = kernel.library not in ("flash1", "flash2") and gpu.traits.operands == "warps"
    has_high_tiles = is_native and gpu.traits.tensor_memory
    is_plain = kernel.library == "fmha2" and not has_high_tiles
    packs = kernel.library in ("native", "flash4") and gpu.traits.operands in ("copies", "warps") and not has_high_tiles
    blocks = blocks_of(kernel, rows=2 * ROWS if has_high_tiles and is_forward else ROWS, packs=packs)
    flop_per_clock, detail = _flop_per_clock(gpu, kernel, is_native)
    scores = blocks.rows * blocks.columns
    wide = costs.backward_wide if is_native and not is_forward and kernel.head_size > ROWS else 1.0
    flop = wide * (4 if is_forward else 10) * scores * kernel.head_size
    is_emulated = kernel.library == "flash4" and has_high_tiles and is_forward
    exposed = 1.0 if is_plain else costs.emulated if is_emulated else costs.exponentials
    step_clocks = flop / flop_per_clock + exposed * scores / (costs.exponentials_per_clock * gpu.traits.exponentials)
    step_clocks *= costs.first if kernel.library == "flash1" else 1.0
    # Native kernels start the longest blocks first, and one block keeps its SM busy: one of its warp groups multiplies
    # while the other takes exponentials.
    alone, last = (1.0, 0.0) if is_native else (costs.alone, costs.last)
    clocks = spread_over(blocks, gpu.sm_count, step_clocks, costs.block_clocks, alone=alone, last=last)
    compute_s = clocks / working_clock(gpu, kernel.precision)
    if not detail.startswith("memory"):
        spent = kernel.flop * (1.0 if is_forward else costs.backward_energy * wide)
        compute_s = max(compute_s, energy_time(gpu, kernel.precision, spent))
    read_bytes, written_bytes = _traffic(kernel)
    memory_s = memory_time(gpu, read_bytes, written_bytes)
    fixed_s = costs.kernel_s * (1 if is_forward else _BACKWARD_KERNELS)
    time_s = compute_s + costs.exposed_memory * memory_s + fixed_s
    bound = bound_of(time_s, compute_s, memory_s)
    return KernelCost(time_s, bound, float(kernel.flop), read_bytes + written_bytes, detail)


def _unfused(gpu: Gpu, kernel: FusedAttention) -> KernelCost:
    """Return the cost of products and of passes over all scores, which no mask shortens."""
    costs = gpu.constants["attention"]
    rows, columns, size, pairs = kernel.query_length, kernel.key_length, kernel.head_size, kernel.batch * kernel.heads
    scores, weighted = (rows, columns, size), (rows, size, columns)
    products: tuple[tuple[tuple[int, int, int], Layout], ...] = ((scores, "NT"), (weighted, "NN"))
    if kernel.direction == "bwd":
        products = (*products, ((columns, size, rows), "TN"), ((columns, size, rows), "TN"))
    each_s = (product_time(gpu, Gemm(*mnk, kernel.precision, pairs, layout)).time_s for mnk, layout in products)
    passes = costs.unfused_passes if kernel.direction == "fwd" else costs.unfused_backward_passes
    moved = passes * pairs * rows * columns * ELEMENT_BYTES[kernel.precision]
    compute_s, memory_s = sum(each_s), moved / achieved_bandwidth(gpu)
    time_s = compute_s + memory_s
    return KernelCost(time_s, bound_of(time_s, compute_s, memory_s), float(kernel.flop), moved, "not fused")


def _flop_per_clock(gpu: Gpu, kernel: FusedAttention, is_native: bool) -> tuple[float, str]:
    """Return the FLOPs per SM and clock of the matrix products, and the name of the kernel."""
    costs, sm_clocks_per_s = gpu.constants["attention"], gpu.sm_count * working_clock(gpu, kernel.precision)
    peak = 0.0 if kernel.precision in _WIDE else tensor_rate(gpu, kernel.precision) / sm_clocks_per_s
    if not peak:
        return costs.lanes * compute_rate(gpu, "fp32") / sm_clocks_per_s, _EFFICIENT
    if gpu.traits.operands == "warps" and not is_native:
        peak = min(peak, costs.synchronous_per_clock)
    share = costs.products if kernel.direction == "fwd" else costs.backward_products
    name = "flash, native" if is_native else "flash"
    if gpu.traits.operands == "registers":
        share, name = share * costs.foreign, name if gpu.traits.kernels == "amd" else _EFFICIENT
    return peak * share, name


def _traffic(kernel: FusedAttention) -> tuple[float, float]:
    """Return the bytes read and written; backward includes gradients, with that of the queries accumulated in fp32."""
    element = ELEMENT_BYTES[kernel.precision]
    queries = kernel.batch * kernel.heads * kernel.query_length * kernel.head_size
    keys = 2 * kernel.batch * kernel.kv_heads * kernel.key_length * kernel.head_size
    if kernel.direction == "fwd":
        return float(element * (queries + keys)), float(element * queries)
    return float(element * (3 * queries + keys) + 4 * queries), float(element * (queries + keys) + 4 * queries)
