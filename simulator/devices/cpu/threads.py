"""Threads of a CPU: how many cores they amount to, and what it costs that they start and end together.

Threads help up to the number of cores.  Above it two share a core's vector units and caches.  Each
parallel region costs its fork and its barrier; more threads than the hardware runs at once wait at
every barrier for one that the scheduler has put aside.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from simulator.constants import constants
from simulator.devices.cpu.cpu import Cpu
from simulator.workload.precision import Precision

__all__ = ["ThreadCosts", "compute_rate", "effective_cores", "region_time", "scalar_rate", "vector_rate"]


@constants("cpu_threads")
@dataclass(frozen=True, slots=True)
class ThreadCosts:
    """Constants of threads, the same for all CPUs."""

    region_cycles: float
    shared_core: float
    slice_s: float


def effective_cores(cpu: Cpu, threads: int) -> float:
    """Return how many cores' work *threads* do, of parts that are equal for each thread.

    Where threads outnumber cores, the busiest core has ``ceil(threads / cores)`` parts, and all wait for it.
    """
    cores = cpu.core_count
    if threads <= cores:
        return threads
    return threads / math.ceil(threads / cores) * cpu.constants(ThreadCosts).shared_core


def region_time(cpu: Cpu, threads: int) -> float:
    """Return the seconds that a parallel region of *threads* adds: fork, barrier, and who is late."""
    if threads <= 1:
        return 0.0
    costs = cpu.constants(ThreadCosts)
    time_s = costs.region_cycles * math.log2(threads) / cpu.core_clock(min(threads, cpu.core_count))
    # Frameworks of 2016 read their data in a thread beside those that compute.
    others = 1 if cpu.library == "blas" else 0
    late = (threads + others) / cpu.hardware_threads - 1.0
    return time_s + max(0.0, late) * costs.slice_s


def compute_rate(cpu: Cpu, precision: Precision, threads: int) -> float:
    """Return the peak rate of *threads* in FLOP/s; raises InputError where the part lacks *precision*."""
    clock_Hz = cpu.core_clock(min(threads, cpu.core_count))
    return cpu.core_flop_per_cycle(precision) * clock_Hz * effective_cores(cpu, threads)


def vector_rate(cpu: Cpu, threads: int) -> float:
    """Return the cycles in a second of *threads* together, counted on cores with two vector units of 256 bits.

    Such a core does 32 FLOPs a cycle in fp32; wider and narrower ones count in proportion.
    """
    width = cpu.flop_per_cycle.get("fp32", 32) / 32
    return width * cpu.core_clock(min(threads, cpu.core_count)) * effective_cores(cpu, threads)


def scalar_rate(cpu: Cpu, threads: int, *, alone: bool = False) -> float:
    """Return the cycles in a second of *threads* together, of loops without vectors.

    Such loops run between products with vectors, whose clock a core keeps for two milliseconds after the last (license
    0 of Intel's after 1; Downs, Gathering Intel on Intel AVX-512 Transitions); *alone* they run at that of a core
    without.
    """
    clock_Hz = cpu.core_clock(min(threads, cpu.core_count), vectors=not alone)
    return clock_Hz * effective_cores(cpu, threads)
