"""The clock that a device holds under load, against its power limit."""

from __future__ import annotations

from simulator.devices.device import Gpu
from simulator.workload.precision import Precision

__all__ = ["sustained_clock"]


def sustained_clock(gpu: Gpu, precision: Precision) -> float:
    """Return the clock, in Hz, at which *gpu* computes in *precision* for a long time."""
    del precision
    return gpu.boost_clock_Hz * gpu.calibration.compute
