"""Buckets of gradients: what it costs to copy gradients in and, once summed, out again.

PyTorch's DistributedDataParallel divides each gradient by the number of ranks as it copies it into its bucket, and
copies the sums back into the gradients before the update (Reducer; Horovod's fusion buffer does the same).
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.devices.dispatch import dispatch_time
from simulator.devices.kernels import Streaming
from simulator.devices.predict import Device, kernel_class, kernel_cost
from simulator.step.issue import DeviceWork, Issue
from simulator.workload.operators import Copy

__all__ = ["copy_in", "copy_out"]


def copy_in(device: Device, layer: str, elements: Sequence[int], element_bytes: int) -> Issue:
    """Return the copies of gradients of so many *elements* each, of *layer*, into a bucket."""
    return _copies(f"{layer} (into bucket)", device, layer, "mul_scalar", elements, element_bytes)


def copy_out(device: Device, elements: Sequence[int], element_bytes: int) -> Issue:
    """Return the copies of a bucket's sums into gradients of so many *elements* each."""
    return _copies("out of bucket", device, "", "copy", elements, element_bytes)


def _copies(name: str, device: Device, layer: str, function: str, elements: Sequence[int], element_bytes: int) -> Issue:
    kernels = [Streaming(function, n, n * element_bytes, n * element_bytes) for n in elements]
    costs = tuple(kernel_cost(device, kernel) for kernel in kernels)
    host_s = sum(dispatch_time(device, Copy(n), "bwd_data") for n in elements)
    work = DeviceWork(tuple(map(kernel_class, kernels)), costs, sum(cost.time_s for cost in costs))
    return Issue(name, "backward", host_s, work, layer=layer)
