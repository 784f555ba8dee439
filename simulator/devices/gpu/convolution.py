"""Convolutions, by the fastest algorithm that the library has for the shape."""

from __future__ import annotations

from dataclasses import replace

from simulator.devices.cost import KernelCost, bound_of
from simulator.devices.gpu.convolution_algorithms import ConvolutionAlgorithm, Problem, problem
from simulator.devices.gpu.gpu import Gpu
from simulator.devices.gpu.implicit_gemm import byte_gemm, direct, explicit_gemm, implicit_gemm, tensor_gemm
from simulator.devices.gpu.rates import BYTES_AT_ONCE, energy_time, multiplies_bytes, sustained_clock, tensor_rate
from simulator.devices.gpu.winograd import fft_tiles, winograd, winograd_fused
from simulator.workload.operators import Conv2d, Convolution
from simulator.workload.precision import ELEMENT_BYTES

_LARGEST_FFT_FILTER = 16


def convolution_cost(gpu: Gpu, kernel: Convolution) -> KernelCost:
    """Return the cost of *kernel* on *gpu*.

    Below fp32, libraries use matrix units where the device has them, and fp32 lanes only for grouped convolutions;
    without matrix units, a lower precision only reduces the bytes.  Old libraries use lanes for dilated ones, too.

    Raises InputError where the device has no figure for the kernel's precision.
    """
    asked = problem(gpu, kernel, ELEMENT_BYTES[kernel.precision])
    tensor_flops_per_s = tensor_rate(gpu, kernel.precision)
    if not gpu.any_shape_on_tensor_cores and _is_dilated(kernel.shape):
        tensor_flops_per_s = 0.0
    on_lanes = not tensor_flops_per_s and multiplies_bytes(gpu, kernel.precision)
    packed = kernel.precision == "int8" and gpu.traits.int8_dot_products and _is_plain(kernel)
    if packed:  # transforms do not apply: their sums overflow a byte
        candidates = [byte_gemm(asked, tensor_flops_per_s or _of_bytes(asked).rate_flops_per_s)]
    elif on_lanes:
        candidates = [implicit_gemm(_of_bytes(asked))]
    else:
        candidates = [] if tensor_flops_per_s and kernel.shape.groups == 1 else _on_lanes(asked)
    if tensor_flops_per_s and not packed:
        energy_s = energy_time(gpu, kernel.precision, float(kernel.flop))
        candidates.append(tensor_gemm(asked, tensor_flops_per_s, energy_s, kernel.channels_last))
    best = min(candidates)
    bound = bound_of(best.time_s, best.compute_s, best.memory_s)
    return KernelCost(best.time_s, bound, float(kernel.flop), best.bytes, best.name)


def _is_plain(kernel: Convolution) -> bool:
    """Return whether *kernel* is a forward convolution without groups."""
    return kernel.direction == "fwd" and kernel.shape.groups == 1


def _is_dilated(shape: Conv2d) -> bool:
    """Return whether the filter skips elements of its input."""
    return shape.dilation_h > 1 or shape.dilation_w > 1


def _of_bytes(asked: Problem) -> Problem:
    """Return *asked* for lanes that multiply four bytes at once, at the clock they sustain for int8."""
    faster = BYTES_AT_ONCE * sustained_clock(asked.gpu, "int8") / sustained_clock(asked.gpu, "fp32")
    hot = asked.hot_rate_flops_per_s * faster
    return replace(asked, rate_flops_per_s=hot, hot_rate_flops_per_s=hot)


def _on_lanes(asked: Problem) -> list[ConvolutionAlgorithm]:
    """Return the library's algorithms that do without matrix units."""
    shape = asked.shape
    found = [implicit_gemm(asked)]
    if shape.groups > 1:
        found.append(direct(asked))
    if asked.direction == "bwd_data" and (asked.taps > 1 or not asked.unit_stride):
        found.append(explicit_gemm(asked))
    if shape.groups > 1 or asked.taps == 1 or _is_dilated(shape):
        return found
    weight = asked.direction == "bwd_weight"
    if asked.gpu.traits.kernels == "amd":
        if not weight:
            found.append(winograd_fused(asked))
    elif asked.unit_stride:
        square = shape.kernel_h == shape.kernel_w
        if square and asked.taps == 9 and not weight and asked.gpu.traits.fused_winograd:
            found.append(winograd_fused(asked))
        if square and asked.taps in (9, 25) and not (weight and asked.gpu.traits.cudnn == 5):
            found.append(winograd(asked))  # for weights since cuDNN 5.1
        if max(shape.kernel_h, shape.kernel_w) <= _LARGEST_FFT_FILTER:
            found.append(fft_tiles(asked))
    return found
