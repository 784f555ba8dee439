"""Convolutions, by the fastest algorithm that the library has for the shape; here also Winograd's and Fourier's.

F(m x m, r x r) computes m^2 results of r x r taps with (m + r - 1)^2 multiplications instead of m^2 r^2.  Fused in one
kernel, F(2 x 2, 3 x 3) needs 16 instead of 36.  With its transforms in separate kernels, F(4 x 4, 3 x 3) needs 36
instead of 144, as 36 matrix products, and the transformed data goes through memory.  MIOpen cuts larger and strided
filters into 3 x 3 parts.

Lavin, Gray, "Fast algorithms for convolutional neural networks", 2015; Vasilache et al., "Fast convolutional
nets with fbfft", 2014.
"""

from __future__ import annotations

from math import ceil

from simulator.devices import KernelCost, bound_of
from simulator.devices.gpu import Gpu
from simulator.devices.gpu.convolution_algorithms import (
    ANY_TILES,
    ConvolutionAlgorithm,
    Engine,
    Problem,
    at_least,
    blocks_time,
    problem,
)
from simulator.devices.gpu.implicit_gemm import byte_gemm, direct, explicit_gemm, implicit_gemm, tensor_gemm
from simulator.devices.gpu.rates import (
    BYTES_AT_ONCE,
    energy_time,
    held,
    multiplies_bytes,
    sustained_clock,
    tensor_pace,
    tensor_rate,
)
from simulator.records import replace
from simulator.workload.operators import Conv2d, Convolution
from simulator.workload.precision import ELEMENT_BYTES

_FUSED = ((32, 32), (64, 32))  # channels by image tiles of 16 elements each
_FUSED_DEPTH = 16
# cuDNN's kernels give a block 32 tiles of 2 x 2, arranged as images by rows by columns (tile148n, tile228n, tile418n);
# where these do not divide the images, blocks compute past the edges.
_FUSED_PLACES = ((1, 4, 8), (2, 2, 8), (4, 1, 8))
_POINTS = 36  # elements of a transformed tile, 6 x 6
_FFT_SIDE = 32
_FREQUENCIES = _FFT_SIDE * (_FFT_SIDE // 2 + 1)  # of a real tile; each is complex
_COMPLEX = 4  # real multiplications in one complex one


def winograd_fused(problem: Problem) -> ConvolutionAlgorithm:
    """Return F(2 x 2, 3 x 3) in one kernel."""
    costs, shape = problem.costs, problem.shape
    if problem.gpu.traits.kernels == "amd":
        parts = _parts(shape.kernel_h, shape.stride_h) * _parts(shape.kernel_w, shape.stride_w)
        share, tiles = costs.amd_winograd, shape.batch * ceil(shape.h_out / 2) * ceil(shape.w_out / 2)
    else:
        parts, share, tiles = 1, costs.winograd_fused, _fused_places(shape.batch, problem.height, problem.width)
    rate = problem.hot_rate_flops_per_s * share
    engine = Engine(problem.gpu.sm_count, rate, costs.tile_intensity, costs.winograd_fused_prologue_k)
    k = problem.reduction * parts
    compute_s = blocks_time(costs, engine, problem.rows, tiles, k, _FUSED, depth=_FUSED_DEPTH)
    memory_s = problem.bytes / problem.bandwidth_Bps
    filters_s = 0.0 if problem.gpu.traits.kernels == "amd" else _filters_time(problem, _FUSED_DEPTH)
    time_s = at_least(compute_s, memory_s) + filters_s + costs.kernel_s + problem.next_kernel_s
    return ConvolutionAlgorithm(time_s, "Winograd 2x2, fused", compute_s, memory_s, problem.bytes)


def _fused_places(batch: int, height: int, width: int) -> int:
    """Return the number of 2 x 2 tiles that blocks compute, including those past the images' edges, at the best cut."""
    return min(
        images * rows * columns * -(-batch // images) * -(-height // (2 * rows)) * -(-width // (2 * columns))
        for images, rows, columns in _FUSED_PLACES
    )


def _filters_time(problem: Problem, points: int) -> float:
    """Return the seconds to read the filters and write them transformed, with *points* elements each."""
    numbers = problem.rows * problem.reduction * (problem.taps + points)
    return problem.element_bytes * numbers / (problem.bandwidth_Bps * problem.costs.transform)


def _parts(kernel: int, stride: int) -> int:
    """Return the number of 3-tap, stride-1 filters into which one of *kernel* taps is cut, along one axis."""
    return stride * ceil(ceil(kernel / stride) / 3)


def winograd(problem: Problem) -> ConvolutionAlgorithm:
    """Return F(4 x 4, 3 x 3), or F(2 x 2, 5 x 5), with its transforms in separate kernels."""
    costs = problem.costs
    side = 4 if problem.taps == 9 else 2
    tiles = problem.shape.batch * ceil(problem.height / side) * ceil(problem.width / side)
    rate = problem.rate_flops_per_s * costs.winograd_fused
    engine = Engine(problem.gpu.sm_count, rate, costs.tile_intensity, costs.prologue_k)
    return _transformed(problem, engine, tiles, _POINTS, 1, "Winograd 4x4" if side == 4 else "Winograd 2x2, 5x5")


def fft_tiles(problem: Problem) -> ConvolutionAlgorithm:
    """Return the product of the Fourier transforms of 32 x 32 tiles that overlap by the filter."""
    costs, shape = problem.costs, problem.shape
    rows = ceil(problem.height / (_FFT_SIDE + 1 - shape.kernel_h))
    columns = ceil(problem.width / (_FFT_SIDE + 1 - shape.kernel_w))
    rate = problem.rate_flops_per_s * costs.fft
    engine = Engine(problem.gpu.sm_count, rate, costs.tile_intensity, costs.prologue_k)
    return _transformed(problem, engine, shape.batch * rows * columns, _FREQUENCIES, _COMPLEX, "FFT 32x32")


def _transformed(
    problem: Problem, engine: Engine, tiles: int, points: int, work: int, name: str
) -> ConvolutionAlgorithm:
    """Return *points* products over channels (``bwd_weight``: over tiles), with transforms before and after."""
    costs = problem.costs
    m, n, k = problem.rows, tiles, problem.reduction
    if problem.direction == "bwd_weight":
        n, k = k, n
    compute_s = blocks_time(costs, engine, m, n, k, ANY_TILES, batch=points * work)
    values = 2 if work == _COMPLEX else 1
    channels = problem.rows + problem.reduction
    points *= values
    image_bytes = problem.element_bytes * points * tiles * channels
    filter_bytes = problem.element_bytes * points * problem.rows * problem.reduction
    memory_s = (image_bytes + filter_bytes) / problem.bandwidth_Bps
    passes_s = (problem.bytes + image_bytes) / (problem.bandwidth_Bps * costs.transform)
    passes_s += _filters_time(problem, points)
    time_s = at_least(compute_s, memory_s) + passes_s + costs.kernel_s + 3 * problem.next_kernel_s
    n_bytes = problem.bytes + 2 * (image_bytes + filter_bytes)
    return ConvolutionAlgorithm(time_s, name, compute_s, memory_s + passes_s, n_bytes)


_LARGEST_FFT_FILTER = 16


def convolution_cost(gpu: Gpu, kernel: Convolution) -> KernelCost:
    """Return the cost of *kernel* on *gpu*.

    Below fp32, libraries use matrix units where the device has them, and fp32 lanes only for grouped convolutions;
    without matrix units, a lower precision only reduces the bytes.  Old libraries use lanes for dilated ones, too.

    Raises InputError where the device has no figure for the kernel's precision.
    """
    asked = problem(gpu, kernel, ELEMENT_BYTES[kernel.precision])
    tensor_flops_per_s = tensor_rate(gpu, kernel.precision)
    if kernel.precision == "tf32" and "tf32" in gpu.peak_flops_per_s:  # a way of its own, even where it has fp32's rate
        tensor_flops_per_s = tensor_flops_per_s or held(gpu, gpu.peak("tf32"), "tf32")
    if not gpu.any_shape_on_tensor_cores and _is_dilated(kernel.shape):
        tensor_flops_per_s = 0.0
    on_lanes = not tensor_flops_per_s and multiplies_bytes(gpu, kernel.precision)
    plain = kernel.direction == "fwd" and kernel.shape.groups == 1
    packed = kernel.precision == "int8" and gpu.traits.int8_dot_products and plain
    if packed:  # transforms do not apply: their sums overflow a byte
        candidates = [byte_gemm(asked, tensor_flops_per_s or _of_bytes(asked).rate_flops_per_s)]
    elif on_lanes:
        candidates = [implicit_gemm(_of_bytes(asked))]
    else:
        candidates = [] if tensor_flops_per_s and kernel.shape.groups == 1 else _on_lanes(asked, kernel.channels_last)
    if tensor_flops_per_s and not packed:
        pace, energy_s = tensor_pace(gpu, kernel.precision), energy_time(gpu, kernel.precision, float(kernel.flop))
        candidates.append(tensor_gemm(asked, tensor_flops_per_s, pace, energy_s, kernel.channels_last))
    best = min(candidates)
    bound = bound_of(best.time_s, best.compute_s, best.memory_s)
    return KernelCost(best.time_s, bound, float(kernel.flop), best.bytes, best.name)


def _is_dilated(shape: Conv2d) -> bool:
    """Return whether the filter skips elements of its input."""
    return shape.dilation_h > 1 or shape.dilation_w > 1


def _of_bytes(asked: Problem) -> Problem:
    """Return *asked* for lanes that multiply four bytes at once, at the clock they sustain for int8."""
    faster = BYTES_AT_ONCE * sustained_clock(asked.gpu, "int8") / sustained_clock(asked.gpu, "fp32")
    hot = asked.hot_rate_flops_per_s * faster
    return replace(asked, rate_flops_per_s=hot, hot_rate_flops_per_s=hot)


def _on_lanes(asked: Problem, channels_last: bool) -> list[ConvolutionAlgorithm]:
    """Return the library's algorithms that do without matrix units."""
    shape = asked.shape
    found = [implicit_gemm(asked)]
    if shape.groups > 1:
        found.append(direct(asked, channels_last))
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
