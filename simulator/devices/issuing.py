"""How a kernel's time on a GPU depends on the way it is issued."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.constants import constants
from simulator.devices.cpu.cpu import Cpu
from simulator.devices.predict import Device

__all__ = ["IssuingCosts", "in_graph"]


@constants("issuing")
@dataclass(frozen=True, slots=True)
class IssuingCosts:
    """Constants of issuing, the same for all GPUs."""

    graph_saves_s: float


def in_graph(device: Device, kernel_s: float) -> float:
    """Return the seconds of a kernel of *kernel_s* where it comes from a captured graph."""
    if isinstance(device, Cpu) or device.vendor != "nvidia":
        return kernel_s
    saves_s = device.constants(IssuingCosts).graph_saves_s
    return max(kernel_s - saves_s, saves_s)
