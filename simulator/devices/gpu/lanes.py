"""Arithmetic of kernels that memory bounds, counted in issue slots of a lane."""

from __future__ import annotations

from simulator.devices.gpu.gpu import Gpu

__all__ = ["compute_time", "lanes_per_sm"]

# Before Volta the fp32 lanes do the integer work too (addresses, bounds, Philox): NVIDIA, "Volta
# architecture", 2017.  How much that is: powers on P100 against those on A100.
_SHARED_LANES = frozenset(("fermi", "kepler", "maxwell", "pascal"))
SHARED_SLOTS = 1.9


def lanes_per_sm(gpu: Gpu) -> float:
    """Return the fp32 lanes of one SM: its peak rate counts two FLOPs a lane and clock."""
    peak = gpu.peak_flops_per_s.get("fp32")
    return peak / (2.0 * gpu.sm_count * gpu.boost_clock_Hz) if peak else 64.0


def compute_time(gpu: Gpu, elements: float, slots: float) -> float:
    """Return the seconds in which all lanes together do *slots* instructions for each of *elements*.

    At boost clock: lanes that mostly wait for memory do not meet the board's power limit.
    """
    if gpu.generation in _SHARED_LANES:
        slots *= SHARED_SLOTS
    clock_hz = gpu.boost_clock_Hz * gpu.calibration.compute
    return elements * slots / (gpu.sm_count * lanes_per_sm(gpu) * clock_hz)
