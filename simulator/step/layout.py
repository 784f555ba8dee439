"""Memory layouts of images, and the copies between them.

Tensor cores read images pixel by pixel (NHWC).  If a framework keeps them plane by plane (NCHW), cuDNN converts what a
convolution reads.  Kernels for Volta and Turing write planes themselves (``nhwc2nchw``), whatever the filter size, so
only their inputs are copied: nchwToNhwc takes 26.6 ms of a step of ResNet-50 on a V100 (PaddlePaddle issue 19425).  On
later GPUs, the cost of a convolution includes the conversion (:mod:`simulator.devices.gpu.implicit_gemm`).

fp32 lanes read images plane by plane.  If a framework keeps them by pixels, all inputs and outputs of a convolution
are copied: a step of ResNet-50 in fp32 at batch 128 takes 413 ms on a V100, against 342 ms by planes
(sandeepkumar-skb/pytorch_experiments).  Kernels without a reduction over channels (depthwise) read both layouts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from simulator.devices.gpu.gpu import Gpu
from simulator.devices.predict import Device, allowed_ways, kernel_cost
from simulator.workload.kernels import Kernel, Rowwise, Streaming
from simulator.workload.operators import Convolution
from simulator.workload.precision import ELEMENT_BYTES

_WRITE_PLANES = frozenset(("volta", "turing"))
# The images and gradients that a convolution reads; below, also those that it writes.
_READ = {
    "fwd": ("input_elements",),
    "bwd_data": ("output_elements",),
    "bwd_weight": ("input_elements", "output_elements"),
}
_IMAGES = dict.fromkeys(_READ, ("input_elements", "output_elements"))
_BY_PIXELS = frozenset(("tensor cores", "direct"))  # algorithms that read images pixel by pixel


def laid_out(device: Device, kernels: Sequence[Kernel], *, channels_last: bool) -> tuple[Kernel, ...]:
    """Return *kernels* of a convolution or normalisation, with any copies between layouts that they need."""
    by_pixels = tuple(replace(k, channels_last=True) if isinstance(k, Convolution | Rowwise) else k for k in kernels)
    if not isinstance(device, Gpu) or device.vendor != "nvidia":
        return by_pixels if channels_last else tuple(kernels)
    found: list[Kernel] = []
    for by_planes, kernel in zip(kernels, by_pixels, strict=True):
        if not isinstance(kernel, Convolution):
            found.append(kernel if channels_last else by_planes)
            continue
        if channels_last:
            found += _by_pixels(device, kernel)
        elif device.generation in _WRITE_PLANES and kernel_cost(device, kernel).detail == "tensor cores":
            found += [*_copies(kernel, _READ), kernel]
        else:
            found.append(by_planes)
    return tuple(found)


def _by_pixels(device: Gpu, kernel: Convolution) -> Sequence[Kernel]:
    """Return *kernel* on images by pixels, with the copies around it, by the fastest way that a library may take."""
    ways: list[Sequence[Kernel]] = []
    for way in allowed_ways(kernel):
        reads_pixels = kernel_cost(device, way).detail in _BY_PIXELS
        ways.append([way] if reads_pixels else [*_copies(kernel, _IMAGES), way])
    return min(ways, key=lambda found: sum(kernel_cost(device, each).time_s for each in found))


def _copies(kernel: Convolution, which: Mapping[str, Sequence[str]]) -> Iterator[Streaming]:
    """Yield a copy of each image or gradient that *which* lists for the direction of *kernel*."""
    size = ELEMENT_BYTES[kernel.precision]
    for field in which[kernel.direction]:
        elements: int = getattr(kernel.shape, field)
        yield Streaming("copy", elements, elements * size, elements * size)
