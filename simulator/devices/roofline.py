"""The roofline: the bound from the data sheet's peak rates alone, which a model must improve on.

Williams, Waterman, Patterson, "Roofline: an insightful visual performance model", 2009.
"""

from __future__ import annotations

from simulator.devices.cpu.cpu import Cpu
from simulator.devices.kernels import Kernel, Streaming
from simulator.devices.predict import Device


def roofline_s(device: Device, kernel: Kernel) -> float:
    """Return the roofline time in seconds: FLOPs at the peak rate or bytes at the memory bandwidth (of all sockets).

    Raises InputError where the device has no figure for the kernel's precision.
    """
    compute_s = 0.0
    if kernel.flop and not isinstance(kernel, Streaming):
        compute_s = kernel.flop / device.peak(kernel.precision)
    sockets = device.sockets if isinstance(device, Cpu) else 1
    return max(compute_s, kernel.bytes / (device.memory_bandwidth_Bps * sockets))
