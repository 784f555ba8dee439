"""Matrix products on a CPU, and the kernels built from them (docs/decisions/kernels.md)."""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from simulator.constants import Values
from simulator.devices import Bound, KernelCost
from simulator.devices.cpu import LIBRARIES, Cpu, effective_cores, peak_rate, region_time, scalar_rate, vector_rate
from simulator.devices.cpu.memory import PassCosts, cache_bytes, pass_cost, start_time, transfer_time
from simulator.records import replace
from simulator.workload.kernels import Gemm
from simulator.workload.operators import Convolution, FusedAttention, Recurrence
from simulator.workload.precision import ELEMENT_BYTES


@lru_cache(maxsize=512)
def _grids(parts: int) -> tuple[tuple[int, int], ...]:
    return tuple((rows, parts // rows) for rows in range(1, parts + 1) if parts % rows == 0)


def gemm_product(cpu: Cpu, kernel: Gemm, *, packs: bool = True) -> KernelCost:
    """Return the cost of *kernel* on *cpu*; not *packs*: its matrices were just written as products take them."""
    threads = cpu.threads if kernel.flop > cpu.constants["cpu_products"].serial_flop else 1
    rows = min(kernel.m, kernel.n)
    multiply_s, packing_s = multiply_time(cpu, kernel, threads)
    packing_s = packing_s if packs else 0.0
    memory_s = transfer_time(cpu, kernel.bytes, threads)
    # With few rows, computing them one by one, each a pass over the whole matrix, can be faster.
    one_by_one_s = rows * max(memory_s, kernel.flop / rows / peak_rate(cpu, kernel.precision, threads))
    whole_s = multiply_s + max(packing_s, memory_s)
    start_s = start_time(cpu) + region_time(cpu, threads)
    bound: Bound = "latency" if start_s > min(whole_s, one_by_one_s) else "compute"
    if one_by_one_s < whole_s:
        bound = "memory" if bound == "compute" else bound
        return KernelCost(start_s + one_by_one_s, bound, kernel.flop, kernel.bytes, f"rows, {threads} threads")
    if max(packing_s, memory_s) > multiply_s and bound == "compute":
        bound = "memory"
    return KernelCost(start_s + whole_s, bound, kernel.flop, kernel.bytes, f"{threads} threads")


def multiply_time(cpu: Cpu, kernel: Gemm, threads: int) -> tuple[float, float]:
    """Return the seconds that *threads* threads spend multiplying, and those spent packing beforehand."""
    costs = cpu.constants["cpu_products"]
    m, n, k, batch = kernel.m, kernel.n, kernel.k, kernel.batch
    lanes = max(1, cpu.vector_bits // (8 * max(4, ELEMENT_BYTES[kernel.precision])))
    # The library orients the tile so that vectors run along the longer side.
    long, short = max(m, n), min(m, n)
    tiles_long = math.ceil(long / (lanes * costs.tile_vectors))
    tiles_short = math.ceil(short / costs.tile_rows)
    padded = tiles_long * lanes * costs.tile_vectors * min(tiles_short * costs.tile_rows, short + 1)
    if batch >= threads:
        uneven = math.ceil(batch / threads) * threads / batch
    else:
        # Whole products go to groups of threads; C is divided within a group.
        each = threads // batch
        largest = min(math.ceil(tiles_short / r) * math.ceil(tiles_long / c) for r, c in _grids(each))
        uneven = largest * each / (tiles_short * tiles_long) * threads / (each * batch)
    rate = peak_rate(cpu, kernel.precision, threads) * costs.efficiency
    compute_s = 2.0 * batch * padded * (k + costs.start_depth) * uneven / rate
    element = ELEMENT_BYTES[kernel.precision]
    private = cache_bytes(cpu, 1, 1)
    copied = [size for size in (m * k, k * n) if size * element > private]
    cycles = costs.packing_cycles if cpu.library == "onednn" else cpu.cycles.packed
    packing_s = sum(copied) * cycles / scalar_rate(cpu, threads)
    if LIBRARIES[cpu.library].jumps:  # each element that no cache holds waits for memory
        cores = min(threads, cpu.core_count)
        held = cache_bytes(cpu, len(cpu.caches) - 1, cores)
        ahead = cpu.constants(PassCosts).gather_rows_ahead * cores
        missed = ((size, max(0.0, 1.0 - held / (size * element))) for size in copied)
        packing_s += sum(size * (share * cpu.memory_latency_s / ahead) for size, share in missed)
    return compute_s, batch * packing_s


def recurrence_products(cpu: Cpu, kernel: Recurrence) -> KernelCost:
    """Return the cost of *kernel* on *cpu*: a product with all inputs, then one a step, of weights packed once."""
    gates, hidden, steps = kernel.gates * kernel.hidden, kernel.hidden, kernel.timesteps
    rows = steps * kernel.batch
    if kernel.direction == "bwd_weight":
        whole = gemm_product(cpu, Gemm(gates, kernel.inputs + hidden, rows, kernel.precision))
        return KernelCost(whole.time_s, whole.bound, kernel.flop, kernel.bytes, whole.detail)
    inputs = gemm_product(cpu, Gemm(rows, gates, kernel.inputs, kernel.precision))
    step = Gemm(kernel.batch, gates, hidden, kernel.precision)
    threads = cpu.threads if step.flop > cpu.constants["cpu_products"].serial_flop else 1
    multiply_s, _ = multiply_time(cpu, step, threads)
    fetch_s = transfer_time(cpu, step.bytes, threads)
    library = LIBRARIES[cpu.library]
    cell_threads = threads if library.threads else 1
    if library.vectors:
        cell_cycles, rate = cpu.constants["cpu_products"].gate_cycles, vector_rate(cpu, cell_threads)
    else:
        cell_cycles, rate = cpu.cycles.function, scalar_rate(cpu, cell_threads)
    start_s = start_time(cpu) + region_time(cpu, threads)
    step_s = start_s + max(multiply_s, fetch_s) + kernel.batch * gates * cell_cycles / rate
    bound: Bound = "latency" if start_s > step_s / 2 else "memory" if fetch_s > multiply_s else "compute"
    return KernelCost(inputs.time_s + steps * step_s, bound, kernel.flop, kernel.bytes, f"{steps} steps")


def attention_products(cpu: Cpu, kernel: FusedAttention) -> KernelCost:
    """Return the cost of *kernel* on *cpu*: its matrix products, and one exponential per score."""
    blocks = kernel.batch * kernel.heads * math.ceil(kernel.query_length / 32)
    threads = min(cpu.threads, blocks)
    uneven = math.ceil(blocks / threads) * threads / blocks
    rate = peak_rate(cpu, kernel.precision, threads) * cpu.constants["cpu_products"].efficiency
    scores = kernel.batch * kernel.heads * kernel.query_length * kernel.key_length
    depth = 1.0 + cpu.constants["cpu_products"].start_depth / kernel.head_size
    exp_cycles = cpu.constants(PassCosts).row_element_cycles["softmax"]
    compute_s = uneven * (kernel.flop * depth / rate + scores * kernel.seen * exp_cycles / vector_rate(cpu, threads))
    return pass_cost(cpu, compute_s, transfer_time(cpu, kernel.bytes, threads), kernel.bytes, threads, kernel.flop)


class CpuConvolutionCosts(Values, file="cpu_convolution"):
    """Constants of convolutions, the same for all CPUs."""

    efficiency: Mapping[str, float]
    channel_vectors: int


def convolution_products(cpu: Cpu, kernel: Convolution) -> KernelCost:
    """Return the cost of *kernel* on *cpu*."""
    how = LIBRARIES[cpu.library].convolves
    if how != "direct":
        return _unrolled(cpu, kernel, how)
    c, shape, threads = cpu.constants(CpuConvolutionCosts), kernel.shape, cpu.threads
    element = ELEMENT_BYTES[kernel.precision]
    lanes = max(1, cpu.vector_bits // (8 * max(4, element)))
    # Vectors run over the channels that are not reduced: those of the result, or of the images' gradient.
    channels = shape.c_in if kernel.direction == "bwd_data" else shape.c_out
    padded = math.ceil(channels / lanes) * lanes / channels
    blocks = math.ceil(channels / (c.channel_vectors * lanes))
    tasks = shape.batch * blocks * shape.h_out
    uneven = math.ceil(tasks / threads) * threads / tasks
    depth = (shape.c_in if kernel.direction != "bwd_data" else shape.c_out) // shape.groups
    steps = depth * shape.kernel_h * shape.kernel_w
    rate = peak_rate(cpu, kernel.precision, threads) * c.efficiency[kernel.direction]
    compute_s = kernel.flop * padded * uneven * (1.0 + cpu.constants["cpu_products"].start_depth / steps) / rate
    # Filters that fit in no core's private cache are fetched again for every image.
    weights = shape.weight_elements * element
    times = shape.batch if weights / blocks > cache_bytes(cpu, 1, 1) else 1
    moved = (shape.input_elements + shape.output_elements) * element + times * weights
    memory_s = transfer_time(cpu, moved, threads)
    if kernel.direction == "bwd_weight":
        # Each thread accumulates its images into its own copy of the filters; the copies are then summed.
        memory_s += transfer_time(cpu, 2 * min(threads, shape.batch) * weights, threads)
    start_s = start_time(cpu) + region_time(cpu, threads)
    bound: Bound = "latency" if start_s > compute_s + memory_s else "compute" if compute_s > memory_s else "memory"
    time_s = start_s + compute_s + memory_s
    return KernelCost(time_s, bound, kernel.flop, kernel.bytes, f"direct, {threads} threads")


def _unrolled(cpu: Cpu, kernel: Convolution, how: Literal["image", "images", "batch"]) -> KernelCost:
    shape = kernel.shape
    at_once = shape.batch if how == "batch" else 1
    pixels = shape.h_out * shape.w_out * at_once
    window = shape.c_in // shape.groups * shape.kernel_h * shape.kernel_w
    filters = shape.c_out // shape.groups
    if kernel.direction == "fwd":
        product = Gemm(filters, pixels, window, kernel.precision)
    elif kernel.direction == "bwd_data":
        product = Gemm(window, pixels, filters, kernel.precision, layout="TN")
    else:
        product = Gemm(filters, window, pixels, kernel.precision, layout="NT")
    kept = how == "images" and kernel.direction == "bwd_weight"
    busy = max(1, min(cpu.threads, shape.batch)) if how == "images" and not kept else 1
    multiplied = gemm_product(replace(cpu, threads=1) if busy > 1 else cpu, product, packs=how != "batch")
    columns_s = 0.0
    if not kept and (shape.kernel_h * shape.kernel_w > 1 or shape.stride_h * shape.stride_w > 1):
        threads = cpu.threads if LIBRARIES[cpu.library].threads else 1
        n_bytes = 2 * window * pixels * ELEMENT_BYTES[kernel.precision]
        written_s = window * pixels * cpu.cycles.unrolled / scalar_rate(cpu, threads)
        columns_s = max(written_s, transfer_time(cpu, n_bytes, threads))
    time_s = math.ceil(shape.batch / at_once / busy) * shape.groups * (multiplied.time_s + columns_s)
    if busy > 1:
        slower = cpu.core_clock(1) / cpu.core_clock(min(busy, cpu.core_count))
        time_s = slower * time_s * busy / effective_cores(cpu, busy) + region_time(cpu, busy)
    bound: Bound = "memory" if columns_s > multiplied.time_s else multiplied.bound
    return KernelCost(time_s, bound, kernel.flop, kernel.bytes, f"unrolled, {multiplied.detail}")
