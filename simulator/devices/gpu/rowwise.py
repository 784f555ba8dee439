"""Reductions over rows: softmax, normalisation, sums (docs/decisions/kernels.md)."""

import math

from simulator.devices import Bound, KernelCost
from simulator.devices.gpu import Gpu, memory
from simulator.questions.where import Month
from simulator.workload.kernels import Rowwise
from simulator.workload.precision import ELEMENT_BYTES

WARP_ROW = 1024  # longest row that softmax keeps in a warp's registers; PyTorch's since 2.8: twice that, forward
_HOLDS_LONG_ROWS: Month = (2025, 8)
_BLOCK = 1024  # threads that hold a longer row, in as many registers each
_MOST_REGISTERS = 9
_SHARED_BYTES = 48 << 10
_MANY_ROWS = 64 * 1024
_WARP = 32
_IN_WARPS = ("masked_softmax", "causal_softmax")  # in registers whatever the row length
NORM_THREADS = 128  # per block of layer normalisation
_NORM_VECTOR = 4  # elements that a thread of it loads at once, of any size

_FULL_SM = 2048  # threads per SM at which the stated wait of a block applies; with fewer, each block is faster


def rowwise_cost(gpu: Gpu, kernel: Rowwise) -> KernelCost:
    """Return the cost of *kernel* on *gpu*."""
    costs = gpu.constants["rowwise"]
    size = ELEMENT_BYTES[kernel.precision]
    n_bytes = float(kernel.rows * kernel.cols * size)
    backward = kernel.kind.endswith("_bwd")
    name = kernel.kind.removesuffix("_bwd").removeprefix("log_")
    column_share = costs.amd_column_share if gpu.vendor == "amd" else costs.column_share
    if kernel.kind == "sum" and kernel.rows == 1:
        return _whole_sum(gpu, kernel, n_bytes)
    if kernel.kind == "sum":
        ends_s = _partial_sums_s(gpu, kernel) if kernel.own and kernel.channels_last else 0.0
        return _cost(gpu, kernel, memory.memory_time(gpu, n_bytes, 0.0) / column_share, 0.0, n_bytes, ends_s)
    if name.endswith("_weight"):
        time_s = memory.memory_time(gpu, 2.0 * n_bytes, 0.0) / column_share
        # A block of PyTorch's sums 32 columns; where rows are many and columns few, a part of the rows
        # (layer_norm_kernel.cu, LaunchGammaBetaBackwardCUDAKernel).
        blocks = -(-kernel.cols // _WARP)
        if not kernel.own or gpu.vendor == "amd" or (kernel.rows > _MANY_ROWS and 2 * blocks < gpu.sm_count):
            blocks = gpu.sm_count
        blocks_s = 2.0 * n_bytes / (blocks * costs.column_clock_bytes * gpu.light_clock_Hz)
        return _cost(gpu, kernel, time_s, blocks_s, 2.0 * n_bytes)
    if name in ("batch_norm", "batch_norm_stats"):
        return _channels(gpu, kernel)
    holds = kernel.kind == "softmax" and kernel.in_warps and _is_recent(gpu)
    in_warps = (name == "softmax" or kernel.in_warps) and kernel.cols <= (2 * WARP_ROW if holds else WARP_ROW)
    if holds and not in_warps and (slots := _held_slots(gpu, kernel)):
        # Two blocks share an SM.
        compute_s = memory.issue_time(gpu, max(kernel.rows, 2 * gpu.sm_count), slots)
        return _cost(gpu, kernel, memory.memory_time(gpu, n_bytes, n_bytes), compute_s, 2.0 * n_bytes)
    if name in _IN_WARPS or in_warps:
        read_share = 0.5 if name == "causal_softmax" else 1.0
        read = read_share * (2.0 * n_bytes if backward else n_bytes)
        padded = max(_WARP, 1 << (kernel.cols - 1).bit_length())
        elements = read_share * kernel.rows * padded
        compute_s = memory.compute_time(gpu, elements, costs.warp_slots)
        if holds:  # the elements of a lane, one after the other
            compute_s = max(compute_s, padded / _WARP * costs.lane_clocks / gpu.light_clock_Hz)
        if holds and size < ELEMENT_BYTES["fp32"]:
            compute_s = max(compute_s, memory.issue_time(gpu, elements, costs.warp_half_slots))
        return _cost(gpu, kernel, memory.memory_time(gpu, read, n_bytes), compute_s, read + n_bytes)
    if name == "softmax":
        per_load = memory.VECTOR_BYTES // size
        is_recent = not backward and (holds or (kernel.kind == "log_softmax" and _is_recent(gpu)))
        threads = _BLOCK if is_recent else _softmax_threads(kernel.cols // per_load)
        vectors, left = divmod(kernel.cols, threads * per_load)
        loads = (2 if backward else 3) * (vectors + -(-left // threads))
        row_s, slots, again, waited = costs.softmax_row_s, costs.softmax_slots, 2, costs.load_clocks
    else:
        threads, loads = NORM_THREADS, 2 * -(-kernel.cols // (NORM_THREADS * _NORM_VECTOR))
        row_s, slots, again = costs.norm_row_s, costs.warp_slots, 2 if backward else 1
        waited = memory.load_clocks(gpu, (3 if backward else 2) * n_bytes)
    first = 2 if backward else 1  # arrays of the rows' size that are read, before *again* are read once more
    places = gpu.sm_count * (gpu.traits.threads_per_sm // threads)
    under_way = min(1.0, places / kernel.rows) * n_bytes * first
    missed = again * n_bytes * (1.0 - _found_again(gpu, under_way))
    memory_s = memory.memory_time(gpu, first * n_bytes, n_bytes)
    memory_s += missed / memory.achieved_bandwidth(gpu, 1.0)
    cache_s = (first + again + 1) * n_bytes / memory.l2_bandwidth(gpu)
    clocks = loads * waited
    if kernel.kind == "layer_norm":
        clocks += loads / 2 * costs.mean_clocks
    wait_s = clocks / gpu.light_clock_Hz
    if gpu.vendor == "amd":
        row_s, wait_s = row_s * costs.amd_wait, wait_s * costs.amd_wait
    at_once = gpu.sm_count * (_FULL_SM // threads)
    waiting_s = wait_s + max(0.0, kernel.rows / at_once - 1.0) * (row_s + wait_s)
    # Few blocks share an SM's schedulers with few others: with a quarter of the threads, one takes half the time.
    crowding = math.sqrt(min(1.0, max(kernel.rows, gpu.sm_count) / at_once))
    compute_s = memory.compute_time(gpu, kernel.rows * kernel.cols, slots)
    moved = (first + 1) * n_bytes + missed
    return _cost(gpu, kernel, max(memory_s, cache_s), max(compute_s, waiting_s), moved, row_s * crowding)


def _is_recent(gpu: Gpu) -> bool:
    """Return whether softmax is PyTorch's since 2.8, or nothing else is said."""
    return gpu.vendor == "nvidia" and (gpu.libraries is None or gpu.libraries >= _HOLDS_LONG_ROWS)


def _held_slots(gpu: Gpu, kernel: Rowwise) -> float:
    """Return the issue slots of a row that a block holds, all its threads' together; 0 where it is too long."""
    costs, size, registers = gpu.constants["rowwise"], ELEMENT_BYTES[kernel.precision], -(-kernel.cols // _BLOCK)
    if registers <= _MOST_REGISTERS:
        return registers * _BLOCK * costs.register_slots
    fits = kernel.cols * size < _SHARED_BYTES and kernel.cols % (memory.VECTOR_BYTES // size) == 0
    return kernel.cols * costs.shared_slots if fits else 0.0


def _softmax_threads(vectors: int) -> int:
    """Return the threads of softmax's block, chosen so that at least half of the row is loaded in whole vectors."""
    wanted = max(1, min(vectors, 1024) // 2)
    return max(32, 1 << (wanted - 1).bit_length())


def _found_again(gpu: Gpu, under_way_bytes: float) -> float:
    """Return the share of a second reading that the last-level cache, or its near half, serves."""
    costs, size_bytes = gpu.constants["rowwise"], memory.near_bytes(gpu)
    if not size_bytes:
        return 0.0
    filled = under_way_bytes / (costs.reuse_share * size_bytes)
    return 1.0 / (1.0 + math.exp(costs.reuse_slope * math.log(filled)))


def _channels(gpu: Gpu, kernel: Rowwise) -> KernelCost:
    """Return the cost of batch normalisation, in which all channels are in flight at once."""
    costs = gpu.constants["batch_norm"]
    size = ELEMENT_BYTES[kernel.precision]
    n_bytes = float(kernel.rows * kernel.cols * size)
    backward = kernel.kind.endswith("_bwd")
    first = 2 if backward else 1  # arrays read: the images; backward, their gradient too
    if kernel.own:
        return _own_channels(gpu, kernel, first, n_bytes)
    kept = not kernel.channels_last and first * kernel.cols * size <= costs.kept_bytes
    again = 0.0 if kept else first * n_bytes
    memory_s = memory.memory_time(gpu, first * n_bytes, n_bytes)
    memory_s += again * (1.0 - _found_again(gpu, first * n_bytes)) / memory.achieved_bandwidth(gpu, 1.0)
    moved, threads_s = (first + 1) * n_bytes + again, 0.0
    if kept and gpu.traits.integers != "shared":
        # One block has an SM, as registers hold its channel; it loads, adds up and stores one after the other.
        waves = math.ceil(kernel.rows / gpu.sm_count)
        memory_s *= waves * gpu.sm_count / kernel.rows / costs.kept_share
        threads_s = waves * costs.block_clocks / gpu.light_clock_Hz
    elif not kernel.channels_last:
        memory_s /= costs.share
        # With half of the lanes (those of Volta and A100), a block finds places in more clocks.
        is_slow = backward or size < ELEMENT_BYTES["fp32"] or gpu.traits.integers == "own"
        block_per_clock = costs.block_slow_per_clock if is_slow else costs.block_per_clock
        looked_at = moved / size / kernel.rows  # by the block of one channel
        clocks = looked_at * max(1.0 / block_per_clock, kernel.rows / gpu.sm_count / costs.sm_per_clock)
        if gpu.traits.integers == "shared":
            clocks *= costs.places
        threads_s = (clocks + costs.block_clocks) / gpu.light_clock_Hz
    return _cost(gpu, kernel, memory_s, threads_s, moved, other="latency")


_SUM_THREADS, _SUM_WIDTH = 128, 32  # of a block of sums, and those of them side by side, each with four columns
_SUM_LEAST, _SUM_MOST = 16, 256  # values of a thread
_WHOLE_THREADS, _WHOLE_VECTOR = 512, 4  # of a block of the sum over everything, and elements of one of its loads


def _parts(gpu: Gpu, threads: int, values: float, across: int = 1) -> int:
    """Return the blocks that divide *values* of each thread of a sum, *across* side by side (``setReduceConfig``)."""
    filling = gpu.sm_count * (gpu.traits.threads_per_sm // threads)
    if values < _SUM_MOST or across > filling:
        return 1
    return max(min(-(-filling // across), math.ceil(values / _SUM_LEAST)), math.ceil(values / _SUM_MOST))


def _added_clocks(gpu: Gpu, parts: int, at_once: int) -> float:
    """Return the clocks in which the last block adds up what *parts* left in memory, one load after the other."""
    costs = gpu.constants["rowwise"]
    return math.ceil(parts / at_once) * costs.load_clocks + costs.partial_end_clocks if parts > 1 else 0.0


def _partial_sums_s(gpu: Gpu, kernel: Rowwise) -> float:
    """Return the seconds in which the last block of each column adds up what the others left."""
    width = min(_SUM_WIDTH, 1 << max(0, (kernel.rows // 4).bit_length() - 1))
    height = _SUM_THREADS // width
    parts = _parts(gpu, _SUM_THREADS, kernel.cols / height, -(-kernel.rows // (4 * width)))
    return _added_clocks(gpu, parts, height) / gpu.light_clock_Hz


def _whole_sum(gpu: Gpu, kernel: Rowwise, n_bytes: float) -> KernelCost:
    """Return the cost of a sum over everything: one block, each of whose loads waits for the one before, or many."""
    costs, values = gpu.constants["rowwise"], math.ceil(kernel.cols / _WHOLE_THREADS)
    parts = _parts(gpu, _WHOLE_THREADS, values)
    waits_s = math.ceil(values / parts / _WHOLE_VECTOR) * costs.sum_load_clocks / gpu.light_clock_Hz
    ends_s = (costs.sum_block_clocks + _added_clocks(gpu, parts, _WHOLE_THREADS)) / gpu.light_clock_Hz
    return _cost(gpu, kernel, memory.memory_time(gpu, n_bytes, 0.0), waits_s, n_bytes, ends_s, other="latency")


_OWN_THREADS = 512  # of a block (``MAX_BLOCK_SIZE``)
_TILE_CHANNELS, _TILE_PIXELS, _MOST_TILES = 32, 256, 128  # of a block, and blocks for all pixels, by pixels
_HELPERS = {1: 3, 2: 1}  # kernels that zero semaphores and update the running statistics, forward and backward


def _own_channels(gpu: Gpu, kernel: Rowwise, arrays: int, n_bytes: float) -> KernelCost:
    """Return the cost of batch normalisation by PyTorch's own kernels, which read *arrays* of *n_bytes* twice."""
    costs, start_s = gpu.constants["batch_norm"], gpu.constants["memory"].start_s
    alone = kernel.kind.startswith("batch_norm_stats")  # the first reading, whose results leave the device
    moved, readings, slots = (2 * arrays + 1) * n_bytes, 2, costs.own_slots
    memory_s = memory.memory_time(gpu, arrays * n_bytes, 0.0)
    if alone:
        moved, readings, slots = arrays * n_bytes, 1, costs.statistics_slots if arrays == 1 else costs.sums_slots
    else:
        memory_s += memory.memory_time(gpu, arrays * n_bytes, n_bytes)
    if kernel.channels_last:
        blocks = -(-kernel.rows // _TILE_CHANNELS) * min(_MOST_TILES, -(-kernel.cols // _TILE_PIXELS))
        threads_s, launches = 0.0, readings - 1
    else:
        loads = -(-kernel.cols // _OWN_THREADS)
        blocks, at_once = kernel.rows, gpu.sm_count * (gpu.traits.threads_per_sm // _OWN_THREADS)
        clocks = readings * arrays * loads * gpu.constants["rowwise"].load_clocks + costs.block_clocks
        threads_s, launches = -(-blocks // at_once) * clocks / gpu.light_clock_Hz, 0
    most = -(-blocks // gpu.sm_count) * gpu.sm_count / blocks  # of the busiest SM, against all alike
    issued_s = memory.issue_time(gpu, kernel.rows * kernel.cols * most, slots)
    besides_s = (launches + (1 if alone else _HELPERS[arrays])) * start_s
    return _cost(gpu, kernel, memory_s, max(threads_s, issued_s), moved, besides_s, other="latency")


def _cost(
    gpu: Gpu,
    kernel: Rowwise,
    memory_s: float,
    other_s: float,
    moved_bytes: float,
    ends_s: float = 0.0,
    other: Bound = "compute",
) -> KernelCost:
    """Return the cost of overlapping parts: a norm of fourth order, as near a tie neither part is fully hidden.

    *ends_s*: the time of one block besides its loads, which nothing hides; *other*: what *other_s* is of.
    """
    start_s = gpu.constants["memory"].start_s
    longer_s, shorter_s = max(memory_s, other_s), min(memory_s, other_s)
    joined_s = longer_s * (1.0 + (shorter_s / longer_s) ** 4) ** 0.25 if longer_s else 0.0
    bound: Bound = "latency" if joined_s < start_s else "memory" if memory_s >= other_s else other
    return KernelCost(start_s + ends_s + joined_s, bound, kernel.flop, moved_bytes)
