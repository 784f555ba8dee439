"""Threads of a CPU: the number of cores they are worth, and the cost of starting and joining them.

Threads help up to the number of cores; beyond it, two share a core's vector units and caches.  Each parallel region
costs a fork and a barrier.  With more threads than hardware threads, every barrier waits for a thread that the
scheduler has preempted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from simulator.constants import constants
from simulator.devices.cpu.cpu import Cpu
from simulator.workload.precision import Precision


@constants("cpu_threads")
@dataclass(frozen=True, slots=True)
class ThreadCosts:
    """Constants of threads, the same for all CPUs."""

    region_cycles: float
    shared_core: float
    slice_s: float


def effective_cores(cpu: Cpu, threads: int) -> float:
    """Return the number of cores' work that *threads* threads do, when the work is divided equally among them.

    Where threads outnumber cores, the busiest core runs ``ceil(threads / cores)`` of them, and all wait for it.
    """
    cores = cpu.core_count
    if threads <= cores:
        return threads
    return threads / math.ceil(threads / cores) * cpu.constants(ThreadCosts).shared_core


def region_time(cpu: Cpu, threads: int) -> float:
    """Return the seconds that a parallel region of *threads* threads adds: fork, barrier and preempted threads."""
    if threads <= 1:
        return 0.0
    costs = cpu.constants(ThreadCosts)
    time_s = costs.region_cycles * math.log2(threads) / cpu.core_clock(min(threads, cpu.core_count))
    # Frameworks of 2016 read their data in one more thread beside the computing ones.
    others = 1 if cpu.library == "blas" else 0
    late = (threads + others) / cpu.hardware_threads - 1.0
    return time_s + max(0.0, late) * costs.slice_s


def compute_rate(cpu: Cpu, precision: Precision, threads: int) -> float:
    """Return the peak rate of *threads* threads in FLOP/s; raises InputError where the part lacks *precision*."""
    clock_Hz = cpu.core_clock(min(threads, cpu.core_count))
    return cpu.core_flop_per_cycle(precision) * clock_Hz * effective_cores(cpu, threads)


def vector_rate(cpu: Cpu, threads: int) -> float:
    """Return the cycles per second of *threads* threads together, in cycles of a core with two 256-bit vector units.

    Such a core does 32 FLOPs per cycle in fp32; wider and narrower cores count in proportion.
    """
    width = cpu.flop_per_cycle.get("fp32", 32) / 32
    return width * cpu.core_clock(min(threads, cpu.core_count)) * effective_cores(cpu, threads)


def scalar_rate(cpu: Cpu, threads: int, *, alone: bool = False) -> float:
    """Return the cycles per second of *threads* threads together, for loops without vector instructions.

    Such loops run between vectorised products, and a core keeps the vector clock for two milliseconds after the last
    vector instruction (Intel's return from frequency license 1 to 0; Downs, Gathering Intel on Intel AVX-512
    Transitions).  Loops that run *alone* have the scalar clock.
    """
    clock_Hz = cpu.core_clock(min(threads, cpu.core_count), vectors=not alone)
    return clock_Hz * effective_cores(cpu, threads)
