"""Bandwidth of a CPU's caches and memory; passes over them (docs/decisions/kernels.md)."""

import math
from collections.abc import Mapping

from simulator.constants import Values
from simulator.devices import Bound, KernelCost
from simulator.devices.cpu import LIBRARIES, LINE_BYTES, Cpu, region_time, scalar_rate, vector_rate
from simulator.workload.kernels import Rowwise, Streaming
from simulator.workload.operators import Gather, Pooling
from simulator.workload.precision import ELEMENT_BYTES


class CacheCosts(Values, file="cpu_caches"):
    """Constants of caches, the same for all CPUs."""

    bytes_per_cycle: tuple[float, ...]


def cache_bytes(cpu: Cpu, level: int, cores: int) -> float:
    """Return the total bytes of the caches of *level* (from 0) that *cores* cores use; 0 where no such level exists."""
    if not 0 <= level < len(cpu.caches):
        return 0.0
    cache = cpu.caches[level]
    return cache.size_bytes * math.ceil(cores / cache.shared_by_cores)


def held_share(cpu: Cpu, n_bytes: float) -> float:
    """Return the share of *n_bytes*, read repeatedly by all threads, that the last-level cache serves."""
    size_bytes = cache_bytes(cpu, len(cpu.caches) - 1, min(cpu.threads, cpu.core_count)) if cpu.caches else 0.0
    if not size_bytes or cpu.is_cold:
        return 0.0
    costs = cpu.constants(CacheCosts)
    return min(1.0, max(0.0, (costs.none_hit - n_bytes / size_bytes) / (costs.none_hit - costs.all_hit)))


def own_share(neighbours_Bps: float, own_Bps: float) -> float:
    """Return the share of a cache held by a user reading *own_Bps* through it, next to others' *neighbours_Bps*."""
    return own_Bps / (own_Bps + neighbours_Bps)


def bandwidth(cpu: Cpu, working_set_bytes: float, threads: int) -> float:
    """Return the B/s, read and written, of *threads* that pass over the working set; a cold CPU reads memory."""
    costs, cores = cpu.constants(CacheCosts), min(threads, cpu.core_count)
    clock_Hz = cpu.core_clock(cores)
    rate_Bps = math.inf
    found = seconds_per_byte = 0.0
    for level, cache in enumerate(cpu.caches):
        per_cycle = cache.bytes_per_cycle or costs.bytes_per_cycle[min(level, len(costs.bytes_per_cycle) - 1)]
        level_Bps = cores * per_cycle * clock_Hz
        caches = math.ceil(cores / cache.shared_by_cores)
        if cache.bandwidth_Bps:
            level_Bps = min(level_Bps, cache.bandwidth_Bps * caches)
        rate_Bps = min(rate_Bps, level_Bps)
        size_bytes = cache.size_bytes * caches * own_share(cache.neighbours_Bps, rate_Bps / caches)
        hit = (costs.none_hit - working_set_bytes / size_bytes) / (costs.none_hit - costs.all_hit)
        hit = 0.0 if cpu.is_cold else min(1.0, max(found, hit))
        seconds_per_byte += (hit - found) / rate_Bps
        found = hit
        if found >= 1.0:
            break
    if found < 1.0:
        sockets = math.ceil(cores / cpu.cores_per_socket)
        together_Bps = sockets * cpu.memory_bandwidth_Bps * (costs.two_sockets if sockets > 1 else 1.0)
        # The first cores of a second socket do not lower the bandwidth that the first socket already has.
        together_Bps = max(together_Bps, cpu.memory_bandwidth_Bps)
        for cache in (each for each in cpu.caches if each.memory_Bps):
            left_Bps = max(cache.memory_Bps - cache.neighbours_Bps, cache.memory_Bps / 2)  # shared fairly
            together_Bps = min(together_Bps, math.ceil(cores / cache.shared_by_cores) * left_Bps)
        memory_Bps = min(cores * cpu.core_bandwidth_Bps, together_Bps) * cpu.calibration.bandwidth
        seconds_per_byte += (1.0 - found) / min(rate_Bps, memory_Bps)
    return 1.0 / seconds_per_byte


def transfer_time(cpu: Cpu, n_bytes: float, threads: int) -> float:
    """Return the seconds of one pass of *threads* threads over *n_bytes*."""
    return n_bytes / bandwidth(cpu, n_bytes, threads) if n_bytes > 0 else 0.0


# -- passes -----------------------------------------------------------------------------


class PassCosts(Values, file="cpu_passes"):
    """Constants of passes, the same for all CPUs; cycles are those of a core with two 256-bit vector units."""

    grain_elements: int
    vector_cycles: Mapping[str, float]
    scalar_cycles: Mapping[str, float]
    row_element_cycles: Mapping[str, float]
    pool_cycles: Mapping[str, float]
    pool_window_cycles: Mapping[str, float]


_FUNCTIONS = frozenset(("elu", "erf", "exp", "gelu", "gelu_bwd", "log", "pow", "sigmoid", "silu", "tanh", "sin", "cos"))
_DRAWN = frozenset(("normal", "uniform"))  # random numbers: one generator whose state each draw changes, so serial


def start_time(cpu: Cpu) -> float:
    """Return the start-up time of a kernel on one core, in seconds."""
    return cpu.constants(PassCosts).start_cycles / cpu.core_clock(1)


def pass_threads(cpu: Cpu, elements: int) -> int:
    """Return the number of threads that a pass over *elements* elements uses."""
    if not LIBRARIES[cpu.library].threads:
        return 1
    grain = cpu.constants(PassCosts).grain_elements
    return max(1, min(cpu.threads, math.ceil(elements / grain)))


def streaming_pass(cpu: Cpu, kernel: Streaming) -> KernelCost:
    """Return the cost of *kernel* on *cpu*."""
    c = cpu.constants(PassCosts)
    n, name = kernel.elements, kernel.function
    threads = 1 if name in _DRAWN else pass_threads(cpu, n)
    if name in c.scalar_cycles:
        compute_s = n * c.scalar_cycles[name] / scalar_rate(cpu, threads, alone=name in _DRAWN)
    elif not LIBRARIES[cpu.library].vectors:
        cycles = cpu.cycles.function if name in _FUNCTIONS else cpu.cycles.simple
        compute_s = n * cycles / scalar_rate(cpu, threads)
    elif kernel.form == "transposed":
        compute_s = n * c.transposed_cycles / scalar_rate(cpu, threads)
    else:
        compute_s = n * c.vector_cycles.get(name, c.simple_cycles) / vector_rate(cpu, threads)
    # A store that misses all caches fetches its line first (McCalpin, STREAM, 1995), unless it was read just before.
    stored = 0 if name.endswith(("_inplace", "_step")) else kernel.written_bytes
    fetched = (1.0 - held_share(cpu, kernel.bytes)) * stored
    memory_s = transfer_time(cpu, kernel.bytes, threads) + fetched / bandwidth(cpu, math.inf, threads)
    return pass_cost(cpu, compute_s, memory_s, kernel.bytes + fetched, threads)


def rowwise_pass(cpu: Cpu, kernel: Rowwise) -> KernelCost:
    """Return the cost of *kernel* on *cpu*; rows are divided among the threads."""
    c = cpu.constants(PassCosts)
    n = kernel.rows * kernel.cols
    threads = min(pass_threads(cpu, n), kernel.rows)
    rows_each = math.ceil(kernel.rows / threads)
    cycles = c.row_element_cycles.get(kernel.kind, c.simple_cycles)
    library = LIBRARIES[cpu.library]
    if not library.vectors or (library.composes and "batch_norm" in kernel.kind):
        passes = 1 if kernel.kind == "sum" else 3 if kernel.kind.endswith("_bwd") else 2
        cycles = cpu.cycles.function if "softmax" in kernel.kind else passes * cpu.cycles.row
        element_s = cycles / scalar_rate(cpu, threads)
    else:
        element_s = cycles / vector_rate(cpu, threads)
    compute_s = rows_each * threads * (kernel.cols * element_s + c.row_cycles / scalar_rate(cpu, threads))
    return pass_cost(cpu, compute_s, transfer_time(cpu, kernel.bytes, threads), kernel.bytes, threads)


def pooling_pass(cpu: Cpu, kernel: Pooling) -> KernelCost:
    """Return the cost of *kernel* on *cpu*."""
    c = cpu.constants(PassCosts)
    cycles = c.pool_cycles[kernel.kind] + c.pool_window_cycles[kernel.kind] * kernel.window
    if kernel.kind == "max" and kernel.direction == "bwd":
        cycles = c.pool_bwd_max_cycles
    # Both libraries divide channels among threads.
    threads = max(1, min(cpu.threads, math.ceil(kernel.input_elements / c.grain_elements)))
    compute_s = kernel.output_elements * cycles / scalar_rate(cpu, threads)
    return pass_cost(cpu, compute_s, transfer_time(cpu, kernel.bytes, threads), kernel.bytes, threads)


def gather_times(cpu: Cpu, kernel: Gather) -> tuple[float, float, float]:
    """Return the seconds of a gather's instructions, which overlap the rest, waits for rows' first lines, and bytes."""
    c = cpu.constants(PassCosts)
    threads = pass_threads(cpu, kernel.rows * kernel.cols)
    cores = min(threads, cpu.core_count)
    row_bytes = kernel.cols * ELEMENT_BYTES[kernel.precision]
    picked_bytes = kernel.rows * row_bytes
    table_bytes = kernel.vocabulary * row_bytes or math.inf  # a table of unknown size is in no cache
    held = 0.0 if cpu.is_cold else cache_bytes(cpu, len(cpu.caches) - 1, cores)
    missed = max(0.0, 1.0 - held / table_bytes)
    rest = max(0.0, 1.0 - missed * LINE_BYTES / row_bytes)
    read_s = rest * picked_bytes / bandwidth(cpu, table_bytes, threads)
    compute_s = kernel.rows * c.gather_row_cycles / scalar_rate(cpu, threads)
    wait_s = kernel.rows * missed * cpu.memory_latency_s / (c.gather_rows_ahead * cores)
    return compute_s, wait_s, read_s + transfer_time(cpu, kernel.bytes - picked_bytes, threads)


def gather_pass(cpu: Cpu, kernel: Gather) -> KernelCost:
    """Return the cost of *kernel* on *cpu*."""
    compute_s, wait_s, bytes_s = gather_times(cpu, kernel)
    return pass_cost(cpu, compute_s, wait_s + bytes_s, kernel.bytes, pass_threads(cpu, kernel.rows * kernel.cols))


def pass_cost(
    cpu: Cpu, compute_s: float, memory_s: float, n_bytes: float, threads: int, flop: float = 0.0
) -> KernelCost:
    """Return the cost of a kernel whose instructions overlap its transfer, after the start of *threads* threads."""
    start_s = start_time(cpu) + region_time(cpu, threads)
    longer_s = max(compute_s, memory_s)
    bound: Bound = "latency" if start_s > longer_s else "compute" if compute_s > memory_s else "memory"
    return KernelCost(start_s + longer_s, bound, flop, n_bytes, f"{threads} threads")
