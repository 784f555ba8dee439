"""How a small kernel's time on a GPU depends on the way it is issued and timed."""

from __future__ import annotations

from simulator.devices.cpu.cpu import Cpu
from simulator.devices.predict import Device

__all__ = ["ALONE_COSTS_S", "GRAPH_SAVES_S", "alone", "in_graph"]

# Within a captured graph the next kernel of NVIDIA's starts so much sooner than after one launched before it:
# kernels of 64 KiB take 0.9 to 1.3 us there and 1.6 to 2.6 us one after the other (te42kyfo/gpu-benches, A40, L40,
# A100, H200); MI210 and RX 6900 XT show no difference.
GRAPH_SAVES_S = 0.8e-6
# A kernel timed by itself, on a device that was idle, takes so much longer than one that waited for its turn: XLA's
# table of products on H100 is 2.4 us above NVIDIA's own of the same products in a graph, whatever their size (94
# shapes, quartiles 2.1 and 2.6 us; docs/published.md).
ALONE_COSTS_S = 1.6e-6


def in_graph(device: Device, kernel_s: float) -> float:
    """Return the seconds of a kernel of *kernel_s* where it comes from a captured graph."""
    if isinstance(device, Cpu) or device.vendor != "nvidia":
        return kernel_s
    return max(kernel_s - GRAPH_SAVES_S, GRAPH_SAVES_S)


def alone(device: Device, kernel_s: float) -> float:
    """Return the seconds of a kernel of *kernel_s* where it is timed by itself, on a device that was idle."""
    return kernel_s if isinstance(device, Cpu) or device.vendor != "nvidia" else kernel_s + ALONE_COSTS_S
