"""How images lie in memory, and what a framework pays for it.

Matrix units read images pixel by pixel.  Where a framework keeps them plane by plane, cuDNN copies
what a convolution reads.  Kernels for Volta and Turing write planes themselves (``nhwc2nchw``), whatever
the size of the filters, so that what they read is all there is to copy: nchwToNhwc takes 26.6 ms of a step
of ResNet-50 on a V100 (PaddlePaddle issue 19425).  Those for later GPUs are part of what a
convolution costs (:mod:`simulator.devices.gpu.implicit_gemm`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from simulator.devices.gpu.gpu import Gpu
from simulator.devices.kernels import Convolution, Kernel, Rowwise, Streaming
from simulator.devices.predict import Device, kernel_cost
from simulator.workload.precision import ELEMENT_BYTES

__all__ = ["laid_out"]

_WRITE_PLANES = frozenset(("volta", "turing"))


def laid_out(device: Device, kernels: Sequence[Kernel], *, channels_last: bool) -> tuple[Kernel, ...]:
    """Return *kernels* of a convolution or normalisation, with copies between layouts where there are any."""
    by_pixels = tuple(replace(k, channels_last=True) if isinstance(k, Convolution | Rowwise) else k for k in kernels)
    if channels_last:
        return by_pixels
    if not isinstance(device, Gpu) or device.generation not in _WRITE_PLANES:
        return tuple(kernels)
    found: list[Kernel] = []
    for plane_by_plane, kernel in zip(kernels, by_pixels, strict=True):
        if isinstance(kernel, Convolution) and kernel_cost(device, kernel).detail == "tensor cores":
            found += [*_copies(kernel), kernel]
        else:
            found.append(plane_by_plane)
    return tuple(found)


def _copies(kernel: Convolution) -> Iterator[Streaming]:
    """Yield a copy of each image, or gradient of one, that *kernel* reads."""
    size = ELEMENT_BYTES[kernel.precision]
    read = {
        "fwd": (kernel.shape.input_elements,),
        "bwd_data": (kernel.shape.output_elements,),
        "bwd_weight": (kernel.shape.input_elements, kernel.shape.output_elements),
    }
    for elements in read[kernel.direction]:
        yield Streaming("copy", elements, elements * size, elements * size)
