"""How the time of a kernel on a GPU depends on how it is issued, and on other work at the same time."""

from __future__ import annotations

from simulator.constants import constants
from simulator.devices.cpu.cpu import Cpu
from simulator.devices.gpu.gpu import Gpu
from simulator.devices.gpu.memory import MemoryCosts
from simulator.devices.predict import Device
from simulator.records import dataclass


@constants("contention")
@dataclass(frozen=True, slots=True)
class ContentionCosts:
    """Constants of concurrent work; ``simulator/constants/contention.json`` explains each."""

    memory_passes: float
    filling_share: float


@constants("issuing")
@dataclass(frozen=True, slots=True)
class IssuingCosts:
    """Constants of issuing, the same for all GPUs."""

    graph_saves_s: float
    sync_cycles: float
    sync_block_cycles: float


def in_graph(device: Device, kernel_s: float) -> float:
    """Return the seconds of a kernel when a captured graph launches it; *kernel_s* is its time otherwise."""
    if isinstance(device, Cpu) or device.vendor != "nvidia":
        return kernel_s
    saves_s = device.constants(IssuingCosts).graph_saves_s
    return max(kernel_s - saves_s, saves_s)


def stays(gpu: Gpu, kernel_s: float) -> float:
    """Return the seconds of one pass of a persistent kernel: no start, but a grid-wide barrier after each pass."""
    costs = gpu.constants(IssuingCosts)
    met_s = (costs.sync_cycles + gpu.sm_count * costs.sync_block_cycles) / gpu.boost_clock_Hz
    return max(0.0, kernel_s - gpu.constants(MemoryCosts).start_s) + met_s
