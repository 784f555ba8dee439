"""Arithmetic of memory-bound kernels, counted in issue slots of a lane."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.constants import constants
from simulator.devices.gpu.gpu import Gpu


@constants("lanes")
@dataclass(frozen=True, slots=True)
class LaneCosts:
    """Constants of lanes, the same for all GPUs."""

    shared_slots: float


def compute_time(gpu: Gpu, elements: float, slots: float) -> float:
    """Return the seconds that all lanes together need for *slots* instructions on each of *elements*."""
    if gpu.traits.integers == "shared":
        slots *= gpu.constants(LaneCosts).shared_slots
    return elements * slots / (gpu.sm_count * gpu.lanes_per_sm * gpu.light_clock_Hz)
