"""Padding by compilers: rows of products that start at boundaries of 16 bytes.

TorchInductor pads where it finds that faster (``shape_padding``, the default since PyTorch 2.1: pull request 101915),
XLA before it calls cuBLAS (``CublasPadForGemms``).  The kernel that writes an operand writes its padding, and kernels
that read the result skip it.  Both are fused with other kernels, so no copy is counted.
"""

from __future__ import annotations

from dataclasses import replace

from simulator.devices.gpu.gpu import Gpu
from simulator.devices.gpu.tensor_product import is_pipelined
from simulator.devices.kernels import Gemm, Kernel
from simulator.devices.predict import Device, kernel_cost
from simulator.workload.precision import ELEMENT_BYTES

_BOUNDARY_BYTES = 16


def padded(device: Device, kernel: Kernel) -> Kernel:
    """Return *kernel*, or the same product with rows padded to 16 bytes, whichever is faster on *device*."""
    if not isinstance(kernel, Gemm) or not isinstance(device, Gpu) or not is_pipelined(device, kernel.precision):
        return kernel
    whole = _BOUNDARY_BYTES // ELEMENT_BYTES[kernel.precision]
    left, right = kernel.layout
    rows = {"n", "k" if left == "N" else "m", "n" if right == "N" else "k"}  # lengths of the rows of C, A and B
    m, n, k = (
        -(-size // whole) * whole if side in rows else size
        for side, size in (("m", kernel.m), ("n", kernel.n), ("k", kernel.k))
    )
    wider = replace(kernel, m=m, n=n, k=k)
    if wider == kernel:
        return kernel
    return min((kernel, wider), key=lambda product: kernel_cost(device, product).time_s)
