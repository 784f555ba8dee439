"""Arithmetic of kernels that memory bounds, counted in issue slots of a lane."""

from __future__ import annotations

from simulator.devices.gpu.gpu import Gpu

__all__ = ["compute_time"]

# Where fp32 lanes do the integer work too, so much more in all: powers on P100 against those on A100.
_SHARED_SLOTS = 1.9


def compute_time(gpu: Gpu, elements: float, slots: float) -> float:
    """Return the seconds in which all lanes together do *slots* instructions for each of *elements*."""
    if gpu.traits.integers == "shared":
        slots *= _SHARED_SLOTS
    return elements * slots / (gpu.sm_count * gpu.lanes_per_sm * gpu.light_clock_Hz)
