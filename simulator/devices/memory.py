"""What device memory and caches deliver."""

from __future__ import annotations

from simulator.devices.device import Gpu

__all__ = ["achieved_bandwidth"]

STREAM_EFFICIENCY = 0.85


def achieved_bandwidth(gpu: Gpu) -> float:
    """Return what, in B/s, long streams from device memory reach, of reading and writing together."""
    return gpu.memory_bandwidth_Bps * STREAM_EFFICIENCY * gpu.calibration.bandwidth
