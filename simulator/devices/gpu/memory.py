"""Achieved bandwidth of device memory and caches, and the time of a pass over them.

The share of the data sheet's bandwidth that long streams reach depends on the design of the memory controllers, not on
the size of the chip: GPUs before Volta reach about three quarters, later ones about nine tenths, and AMD's something in
between.  Where GDDR stores its own check bits (``inline_ecc``), streams that read and write lose a further fifth, and
streams that only read next to nothing: a T4 reads at 96 % of its data sheet's bandwidth (DeepBench, fp16 products of
8 columns) and makes elementwise passes at 74 %.
"""

from __future__ import annotations

from simulator.constants import constants
from simulator.devices.gpu.gpu import Gpu
from simulator.records import dataclass


@constants("memory")
@dataclass(frozen=True, slots=True)
class MemoryCosts:
    """Constants of memory, the same for all GPUs."""

    early_share: float
    late_share: float
    amd_share: float
    turnaround: float
    check_turnaround: float
    start_s: float
    l2_bytes_per_clock: float
    large_l2_bytes_per_clock: float
    l2_share: float
    l2_slope: int


def stream_share(gpu: Gpu) -> float:
    """Return the share of peak bandwidth that long streams in one direction reach."""
    costs = gpu.constants(MemoryCosts)
    shares = {"early": costs.early_share, "late": costs.late_share, "amd": costs.amd_share}
    return shares[gpu.traits.controllers]


def achieved_bandwidth(gpu: Gpu, read_share: float = 0.5) -> float:
    """Return the bandwidth, in B/s, that long streams reach in device memory, reads and writes together.

    The bus turns around between reads and writes: with a share r of reads, transfers take
    1 + turnaround 4 r (1 - r) times as long.
    """
    costs = gpu.constants(MemoryCosts)
    turnaround = costs.turnaround
    if gpu.inline_ecc and gpu.traits.controllers == "late":
        turnaround += costs.check_turnaround
    turning = 1.0 + turnaround * 4.0 * read_share * (1.0 - read_share)
    return gpu.memory_bandwidth_Bps * stream_share(gpu) / turning * gpu.calibration.bandwidth


def l2_bandwidth(gpu: Gpu) -> float:
    """Return the bandwidth of the last-level cache, in B/s; at least that of the memory behind it."""
    costs = gpu.constants(MemoryCosts)
    per_clock = costs.large_l2_bytes_per_clock if gpu.traits.large_l2 else costs.l2_bytes_per_clock
    found = per_clock * gpu.sm_count * gpu.boost_clock_Hz * gpu.calibration.bandwidth
    return max(found, achieved_bandwidth(gpu))


def resident_share(gpu: Gpu, working_set_bytes: float) -> float:
    """Return the share of accesses that the last-level cache serves when *working_set_bytes* are used cyclically.

    0 where the device is cold: the share is that of the data a kernel finds in the cache when it starts.
    """
    if not working_set_bytes:
        return 1.0
    if not gpu.l2_bytes or gpu.is_cold:
        return 0.0
    costs = gpu.constants(MemoryCosts)
    return 1.0 / (1.0 + (working_set_bytes / (costs.l2_share * gpu.l2_bytes)) ** costs.l2_slope)


def memory_time(gpu: Gpu, read_bytes: float, written_bytes: float, working_set_bytes: float | None = None) -> float:
    """Return the seconds of one pass that reads and writes the given bytes, without the kernel's start.

    Data that fits in the last-level cache is assumed to be there, just written by the kernel before.
    *working_set_bytes* is the data that has to fit: by default, all that is read and written.
    """
    total = read_bytes + written_bytes
    if not total:
        return 0.0
    hits = resident_share(gpu, total if working_set_bytes is None else working_set_bytes)
    memory_s = total / achieved_bandwidth(gpu, read_bytes / total)
    return hits * total / l2_bandwidth(gpu) + (1.0 - hits) * memory_s
