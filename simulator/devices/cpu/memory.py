"""Bandwidth of a CPU's caches and memory: a staircase over the working set, for a given number of active cores.

One core keeps a fixed number of cache lines in flight, which sets its bandwidth (Little's law).  A few cores together
saturate memory, and further ones add nothing.  The cores of one chiplet share its path to memory.

Users of a shared cache hold it in proportion to the bandwidth they read through it, because new data evicts the least
recently used.  Next to busy neighbours, a stream therefore keeps more of its data cached than dependent loads do.
"""

from __future__ import annotations

import math

from simulator.constants import Values
from simulator.devices.cpu import Cpu


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
    """Return the combined read and write bandwidth, in B/s, of *threads* threads passing over the working set.

    A cold CPU reads from memory, whatever the size of the working set.
    """
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
