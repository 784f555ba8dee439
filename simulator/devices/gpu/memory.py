"""Achieved bandwidth of memory and caches, and passes over them (docs/decisions/kernels.md)."""

from collections.abc import Mapping

from simulator.constants import Values
from simulator.devices import Bound, KernelCost
from simulator.devices.gpu import Gpu
from simulator.questions.where import Month
from simulator.workload.kernels import Streaming
from simulator.workload.operators import Gather, Pooling
from simulator.workload.precision import ELEMENT_BYTES, INDEX_BYTES


def achieved_bandwidth(gpu: Gpu, read_share: float = 0.5) -> float:
    """Return the bandwidth, in B/s, that long streams reach in device memory, reads and writes together.

    The bus turns around between reads and writes: with a share r of reads (*read_share*), transfers take
    1 + turnaround 4 r (1 - r) times as long.
    """
    costs, controllers = gpu.constants["memory"], gpu.traits.controllers
    turnaround = costs.turnaround
    if gpu.inline_ecc and controllers == "late":
        turnaround += costs.check_turnaround
    turning = 1.0 + turnaround * 4.0 * read_share * (1.0 - read_share)
    share = {"early": costs.early_share, "late": costs.late_share, "amd": costs.amd_share}[controllers]
    return gpu.memory_bandwidth_Bps * share / turning * gpu.calibration.bandwidth


def l2_bandwidth(gpu: Gpu) -> float:
    """Return the bandwidth of the last-level cache, in B/s; at least that of the memory behind it."""
    costs = gpu.constants["memory"]
    per_clock = costs.large_l2_bytes_per_clock if gpu.traits.large_l2 else costs.l2_bytes_per_clock
    found = per_clock * gpu.sm_count * gpu.boost_clock_Hz * gpu.calibration.bandwidth
    return max(found, achieved_bandwidth(gpu))


def near_bytes(gpu: Gpu) -> float:
    """Return the size of the last-level cache, or of its half that is near an SM."""
    return gpu.l2_bytes / (2.0 if gpu.traits.split_l2 else 1.0)


def resident_share(gpu: Gpu, working_set_bytes: float) -> float:
    """Return the share of accesses to *working_set_bytes*, used cyclically, that the last-level cache serves."""
    if not working_set_bytes:
        return 1.0
    if not gpu.l2_bytes or gpu.is_cold:
        return 0.0
    costs = gpu.constants["memory"]
    filled: float = (working_set_bytes / (costs.l2_share * gpu.l2_bytes)) ** costs.l2_slope
    return 1.0 / (1.0 + filled)


def load_clocks(gpu: Gpu, working_set_bytes: float) -> float:
    """Return the clocks that a thread waits for a load, where as many bytes are used cyclically."""
    costs, hits = gpu.constants["memory"], resident_share(gpu, working_set_bytes)
    return hits * costs.cached_load_clocks + (1.0 - hits) * costs.load_clocks


def memory_time(gpu: Gpu, read_bytes: float, written_bytes: float, working_set_bytes: float | None = None) -> float:
    """Return the seconds of a pass over these bytes, less the start; the cache has what fits of *working_set_bytes*."""
    total = read_bytes + written_bytes
    if not total:
        return 0.0
    hits = resident_share(gpu, total if working_set_bytes is None else working_set_bytes)
    memory_s = total / achieved_bandwidth(gpu, read_bytes / total)
    return hits * total / l2_bandwidth(gpu) + (1.0 - hits) * memory_s


def compute_time(gpu: Gpu, elements: float, slots: float) -> float:
    """Return the seconds that all lanes together need for *slots* instructions on each of *elements*."""
    if gpu.traits.integers == "shared":
        slots *= gpu.constants["memory"].shared_slots
    return elements * slots / (gpu.sm_count * gpu.lanes_per_sm * gpu.light_clock_Hz)


def issue_time(gpu: Gpu, elements: float, slots: float) -> float:
    """Return the seconds in which an SM's schedulers issue *slots* instructions, integer and other, on each element."""
    # Lanes of their own for integers take as many instructions again.
    per_clock = gpu.lanes_per_sm * (2.0 if gpu.traits.integers == "own" else 1.0)
    return elements * slots / (gpu.sm_count * per_clock * gpu.light_clock_Hz)


class StreamingCosts(Values, file="streaming"):
    """Constants of passes, the same for all GPUs."""

    slots: Mapping[str, float]


_DRAWN = ("dropout", "normal", "uniform")  # random numbers from Philox, each drawn independently
_BLOCKS, _CHUNK = 320, 65536  # of a launch over lists of tensors; elements of a block (MultiTensorApply.cuh)
_DRAWN_AT_ONCE = 4096  # elements of an SM in dropout: of 1,024 threads with 51 registers each, four loaded at once
_LIST_THREADS = 1024  # per SM: two blocks of 512 threads with 64 registers each, as Adam's has


def _compute_time(gpu: Gpu, kernel: Streaming) -> float:
    """Return the seconds in which an SM's schedulers issue what computes *kernel* and finds its elements."""
    costs, function = gpu.constants(StreamingCosts), kernel.function
    known = costs.slots.get(function, 0.0) or costs.slots.get(function.removesuffix("_scalar"), 0.0)
    slots, form_slots = costs.base_slots + (costs.pow_slots if function.startswith("pow") else known), 0.0
    if function.startswith(_DRAWN) and not function.endswith("_bwd"):
        product_slots = costs.amd_product_slots if gpu.vendor == "amd" else costs.product_slots
        slots += costs.drawn_slots + costs.philox_products * product_slots
    if kernel.form == "casts" and gpu.vendor == "nvidia":
        form_slots = costs.cast_slots * (3 if function == "copy" else 4)  # the function, its result, its operands
    elif kernel.form in ("strided", "transposed") and gpu.vendor == "nvidia":
        form_slots = costs.offset_slots + (costs.line_slots if kernel.form == "transposed" else 0.0)
    elif known and kernel.written_bytes == 2 * kernel.elements:
        form_slots = costs.half_slots * kernel.bytes / kernel.written_bytes
    computing_s = compute_time(gpu, kernel.elements, slots) / (2.0 if gpu.traits.integers == "own" else 1.0)
    return computing_s + issue_time(gpu, kernel.elements, form_slots)


def _last_blocks(gpu: Gpu, kernel: Streaming, memory_s: float) -> float:
    """Return *memory_s*, or more where blocks that are left of a launch are too few to draw the whole bandwidth."""
    resident = gpu.sm_count * (min(gpu.traits.threads_per_sm, _LIST_THREADS) // 512)
    blocks = min(_BLOCKS, max(1.0, kernel.elements / _CHUNK))
    last = blocks % resident
    drawn_Bps = last * gpu.constants(StreamingCosts).block_bytes_per_clock * gpu.light_clock_Hz
    slower = max(1.0, achieved_bandwidth(gpu) / drawn_Bps) if last else 1.0
    return memory_s * (1.0 + last / blocks * (slower - 1.0))


def streaming_cost(gpu: Gpu, kernel: Streaming) -> KernelCost:
    """Return the cost of *kernel* on *gpu*."""
    start_s = gpu.constants["memory"].start_s
    read, written, function = kernel.read_bytes, kernel.written_bytes, kernel.function
    memory_s = memory_time(gpu, read, written, max(read, written) if function.endswith("_inplace") else kernel.bytes)
    if kernel.form == "tensors":
        memory_s = _last_blocks(gpu, kernel, memory_s)
    compute_s = _compute_time(gpu, kernel)
    if function == "dropout" and read:  # a thread loads again when it has drawn and written for its last load
        waited = gpu.constants["memory"].load_clocks
        memory_s += kernel.elements / (gpu.sm_count * _DRAWN_AT_ONCE) * waited / gpu.light_clock_Hz
    longer_s = max(memory_s, compute_s)
    bound: Bound = "latency" if longer_s < start_s else "compute" if compute_s > memory_s else "memory"
    return KernelCost(start_s + longer_s, bound, kernel.flop, kernel.bytes)


def pooling_cost(gpu: Gpu, kernel: Pooling) -> KernelCost:
    """Return the cost of *kernel* on *gpu*: an output reads its window, or backward an input those that have it."""
    costs = gpu.constants["pooling"]
    size = ELEMENT_BYTES[kernel.precision]
    forward, is_max = kernel.direction == "fwd", kernel.kind == "max"
    images, reduced = float(kernel.input_elements * size), float(kernel.output_elements * size)
    index = float(INDEX_BYTES * kernel.output_elements) if is_max else 0.0
    memory_s = memory_time(gpu, *((images, reduced + index) if forward else (reduced + index, images))) / costs.share
    places = float(kernel.output_elements if forward else kernel.input_elements)
    windows = float(kernel.output_elements * kernel.window)
    if is_max:
        slots = (
            (costs.max_slots, costs.max_window_slots) if forward else (costs.max_bwd_slots, costs.max_bwd_window_slots)
        )
        compute_s = issue_time(gpu, places, slots[0]) + issue_time(gpu, windows, slots[1])
    else:
        compute_s = compute_time(gpu, places, costs.place_slots) + compute_time(gpu, windows, costs.window_slots)
    bound: Bound = "memory" if memory_s >= compute_s else "compute"
    time_s = gpu.constants["memory"].start_s + max(memory_s, compute_s)
    return KernelCost(time_s, bound, kernel.flop, kernel.bytes)


VECTOR_BYTES = 16  # one load of a thread
_COPYING_THREADS = 256
_COPIES_ROWS: Month = (2025, 8)
FEW_ROWS = 3072  # up to here PyTorch adds gradients row by row; beyond, it sorts the indices first


def gather_cost(gpu: Gpu, kernel: Gather) -> KernelCost:
    """Return the cost of *kernel* on *gpu*: of whole rows, in blocks, since PyTorch 2.8 (docs/decisions/kernels.md)."""
    costs, size = gpu.constants["gather"], ELEMENT_BYTES[kernel.precision]
    elements = kernel.rows * kernel.cols
    copied_s = memory_time(gpu, elements * size + float(INDEX_BYTES * kernel.rows), float(elements * size))
    is_old = gpu.libraries is not None and gpu.libraries < _COPIES_ROWS
    if kernel.direction == "bwd" or not kernel.whole_rows or is_old or kernel.cols * size % VECTOR_BYTES:
        time_s = max(copied_s / costs.share, compute_time(gpu, elements, costs.slots))
    else:
        blocks = kernel.rows * -(-kernel.cols * size // (VECTOR_BYTES * _COPYING_THREADS))
        time_s = max(copied_s, blocks / (gpu.constants["memory"].blocks_per_clock * gpu.light_clock_Hz))
    time_s += gpu.constants["memory"].start_s
    if kernel.direction == "fwd":
        return KernelCost(time_s, "memory", kernel.flop, kernel.bytes)
    filled_s = memory_time(gpu, 0.0, float(kernel.vocabulary * kernel.cols * size))
    time_s += filled_s + (costs.few_s if kernel.rows <= FEW_ROWS else costs.sort_s)
    return KernelCost(time_s, "memory", kernel.flop, kernel.bytes, "rows" if kernel.rows <= FEW_ROWS else "sort")
