"""Convolutions by the fastest algorithm for the shape; those that are products (docs/decisions/kernels.md)."""

from copy import copy
from math import ceil

from simulator.devices import KernelCost, bound_of
from simulator.devices.gpu import TILES, Gpu, rates
from simulator.devices.gpu import convolution_algorithms as ways
from simulator.devices.gpu.convolution_algorithms import ConvolutionAlgorithm, Problem, at_least, blocks_time
from simulator.devices.gpu.memory import issue_time, memory_time
from simulator.devices.gpu.product import tensor_product_time
from simulator.questions.where import Month
from simulator.workload.kernels import Gemm
from simulator.workload.operators import Conv2d, Convolution
from simulator.workload.precision import ELEMENT_BYTES

_LARGEST_FFT_FILTER = 16

_FEW_CHANNELS = 16
_CUDNN_9: Month = (2024, 2)  # the first that issues Hopper's own instructions
_CHANNELS = 8  # tensor cores take channels in multiples of this
_FEWEST_CHANNELS = 4  # that have kernels of their own
_TAP_CHANNELS = 32  # channels of one tap in a step of the reduction
_ONCE: tuple[int, ...] = (1,)
_FILTER_TILE = 128  # channels of one tap, and of the result, in whole_filter_tiles
_NARROW = 16  # rows and columns of a filter
_UNROLLED = (1, 3, 5)  # sides of the filters for which kernels of depthwise convolutions are compiled
_BYTE_TILE = 128  # channels and pixels of the one tile that cuDNN 6 and 7 have for bytes
_WEIGHT_SPLITS = (8, 16, 32, 64)  # of cuDNN's filter gradients: at least 8 parts, however few the pixels


def convolution_cost(gpu: Gpu, kernel: Convolution) -> KernelCost:
    """Return the cost of *kernel* by the fastest algorithm; raises InputError without a figure for its precision."""
    asked = Problem(gpu, kernel, ELEMENT_BYTES[kernel.precision])
    tensor_flops_per_s = rates.tensor_rate(gpu, kernel.precision)
    if kernel.precision == "tf32" and "tf32" in gpu.peak_flops_per_s:  # a way of its own, even where it has fp32's rate
        tensor_flops_per_s = tensor_flops_per_s or rates.held(gpu, gpu.peak("tf32"), "tf32")
    if not gpu.any_shape_on_tensor_cores and _is_dilated(kernel.shape):
        tensor_flops_per_s = 0.0
    on_lanes = not tensor_flops_per_s and rates.multiplies_bytes(gpu, kernel.precision)
    plain = kernel.direction == "fwd" and kernel.shape.groups == 1
    packed = kernel.precision == "int8" and gpu.traits.int8_dot_products and plain
    if packed:  # transforms do not apply: their sums overflow a byte
        candidates = [byte_gemm(asked, tensor_flops_per_s or _of_bytes(asked).rate_flops_per_s)]
    elif on_lanes:
        candidates = [implicit_gemm(_of_bytes(asked))]
    else:
        candidates = [] if tensor_flops_per_s and kernel.shape.groups == 1 else _on_lanes(asked, kernel.channels_last)
    if tensor_flops_per_s and not packed and not _by_torch(asked, kernel.channels_last):
        of_today = gpu.libraries is None or gpu.libraries >= _CUDNN_9
        by_warps = of_today and gpu.traits.operands == "warps" and kernel.precision in ("fp16", "bf16")
        candidates.append(warp_gemm(asked, kernel) if by_warps else tensor_gemm(asked, kernel, tensor_flops_per_s))
    best = min(candidates)
    bound = bound_of(best.time_s, best.compute_s, best.memory_s)
    return KernelCost(best.time_s, bound, float(kernel.flop), best.bytes, best.name)


def _is_dilated(shape: Conv2d) -> bool:
    return shape.dilation_h > 1 or shape.dilation_w > 1


def _of_bytes(asked: Problem) -> Problem:
    """Return *asked* for lanes that multiply four bytes at once, at the clock they sustain for int8."""
    faster = rates.BYTES_AT_ONCE * rates.sustained_clock(asked.gpu, "int8") / rates.sustained_clock(asked.gpu, "fp32")
    found = copy(asked)
    found.rate_flops_per_s = found.hot_rate_flops_per_s = asked.hot_rate_flops_per_s * faster
    return found


def _on_lanes(asked: Problem, channels_last: bool) -> list[ConvolutionAlgorithm]:
    """Return the library's algorithms that do without matrix units."""
    shape = asked.shape
    if _by_torch(asked, channels_last):
        return [direct(asked, channels_last)]
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
            found.append(ways.winograd_fused(asked))
    elif asked.unit_stride:
        square = shape.kernel_h == shape.kernel_w
        if square and asked.taps == 9 and not weight and asked.gpu.traits.fused_winograd:
            found.append(ways.winograd_fused(asked))
        if square and asked.taps in (9, 25) and not (weight and asked.gpu.traits.cudnn == 5):
            found.append(ways.winograd(asked))  # for weights since cuDNN 5.1
        if max(shape.kernel_h, shape.kernel_w) <= _LARGEST_FFT_FILTER:
            found.append(ways.fft_tiles(asked))
    return found


# -- products, on fp32 lanes or tensor cores, and direct sums ------------------------------


def _backward_data_share(problem: Problem) -> float:
    costs = problem.costs
    return costs.amd_winograd if problem.gpu.traits.kernels == "amd" else costs.backward * costs.gemm


def implicit_gemm(problem: Problem) -> ConvolutionAlgorithm:
    """Return the matrix product whose columns never reach memory (AMD: they do, for more than one tap)."""
    costs, shape, kernels = problem.costs, problem.shape, problem.gpu.traits.kernels
    amd, few_tiles = kernels == "amd", kernels == "maxwell"
    c_in, c_out, taps = problem.c_in, problem.c_out, problem.taps
    n_bytes: float = problem.bytes
    columns = amd and (taps > 1 or not problem.unit_stride)
    tiles = TILES["any"] if amd else TILES["forward"]["early" if few_tiles else "late"]
    splits, split_s = _ONCE, 0.0
    if problem.direction == "bwd_weight":
        by_hand = amd and problem.unit_stride and taps in (9, 25)
        columns = columns and not by_hand
        share = costs.gemm * (costs.backward_weight_1x1 if taps == 1 else costs.backward)
        if amd:
            share = costs.amd_backward_weight_direct if by_hand else costs.amd_gemm
        if not by_hand:
            tiles = TILES["weight" if taps > 1 else "weight_1x1"]["early" if amd or few_tiles else "late"]
        m, n, k = c_in * taps, c_out, problem.pixels_out
        splits, split_s = ways.SPLITS if amd else _WEIGHT_SPLITS, _split_s(problem)
    elif problem.direction == "fwd":
        columns = columns and not (taps > 1 and c_in <= _FEW_CHANNELS)  # MIOpen's direct kernels
        share = costs.amd_gemm if amd else costs.gemm
        m, n, k = c_out, problem.pixels_out, c_in * taps
    else:
        columns = False  # explicit_gemm covers columns in memory
        tiles = TILES["strided"]["early"] if few_tiles and not problem.unit_stride else tiles
        share = _backward_data_share(problem)
        m, n, k = c_in, problem.pixels_in, c_out * problem.taps_of_a_place
    engine = problem.engine(share * (costs.hopper_lanes if problem.gpu.traits.operands == "warps" else 1.0))
    compute_s = blocks_time(costs.residency, engine, m, n, k, tiles, batch=shape.groups, splits=splits, split_s=split_s)
    fixed_s = costs.kernel_s
    if columns:
        n_bytes += 2 * problem.element_bytes * shape.c_in * taps * problem.pixels_out
        fixed_s += problem.next_kernel_s * shape.batch  # im2col goes image by image
    memory_s = n_bytes / problem.bandwidth_Bps
    return ConvolutionAlgorithm(at_least(compute_s, memory_s) + fixed_s, "implicit GEMM", compute_s, memory_s, n_bytes)


def explicit_gemm(problem: Problem) -> ConvolutionAlgorithm:
    """Return the gradient of the images as a product that writes columns, which a second kernel adds up (col2im)."""
    costs, shape = problem.costs, problem.shape
    rows = problem.c_in * problem.taps
    column_bytes = problem.element_bytes * shape.groups * rows * problem.pixels_out
    image_bytes = problem.element_bytes * shape.input_elements
    engine, sides = problem.engine(_backward_data_share(problem)), (rows, problem.pixels_out, problem.c_out)
    compute_s = blocks_time(costs.residency, engine, *sides, TILES["any"], batch=shape.groups)
    memory_s = (problem.bytes + column_bytes) / problem.bandwidth_Bps
    spread = 1.0 if problem.gpu.traits.kernels == "amd" else costs.spread
    spread_s = (column_bytes + image_bytes) / (problem.bandwidth_Bps * spread)
    n_bytes = problem.bytes + 2 * column_bytes + image_bytes
    time_s = at_least(compute_s, memory_s) + spread_s + costs.kernel_s + 2 * problem.next_kernel_s
    return ConvolutionAlgorithm(time_s, "GEMM and col2im", compute_s, memory_s + spread_s, n_bytes)


def tensor_gemm(problem: Problem, kernel: Convolution, rate_flops_per_s: float) -> ConvolutionAlgorithm:
    """Return the implicit product on tensor cores, with copies of images by planes unless it has one tap."""
    costs, groups, traits = problem.costs, problem.shape.groups, problem.gpu.traits
    pace = rates.tensor_pace(problem.gpu, kernel.precision)
    c_in, c_out = (_CHANNELS * ceil(c / _CHANNELS) for c in (problem.c_in, problem.c_out))
    images = c_in * groups * problem.pixels_touched
    result = c_out * groups * problem.pixels_out
    filters = c_in * c_out * groups * problem.taps
    n_bytes: float = problem.element_bytes * (images + result + filters)
    read_bytes, written_bytes = problem.element_bytes * images, problem.element_bytes * result
    share = costs.foreign if traits.kernels == "amd" or traits.operands == "warps" else 1.0
    rate = rate_flops_per_s * share * costs.tensor / (costs.tensor + (1.0 - costs.tensor) * pace)
    engine = ways.tensor_engine(problem.gpu.sm_count, rate, costs.tensor_tile_intensity * pace, costs.prologue_k)
    splits: tuple[int, ...] = ways.SPLITS
    early = traits.kernels == "volta"
    zeros_s = 0.0
    packed = traits.operands in ("copies", "warps")
    if problem.direction == "fwd":
        m, n, k = c_out, problem.pixels_out, _of_taps(c_in, problem.taps, packed)
    elif problem.direction == "bwd_data":
        places = min(problem.pixels_in, problem.pixels_out * problem.taps)
        m, n, k = c_in, places, _of_taps(c_out, problem.taps_of_a_place)
        if early:
            splits = _ONCE
        if places < problem.pixels_in:
            zeros_s = problem.element_bytes * images / problem.bandwidth_Bps
    else:
        m, n, k = _of_taps(c_in, problem.taps, packed), c_out, problem.pixels_out
    split_s = _split_s(problem, m * n * groups)
    tiles = TILES["tensor"]
    narrow = max(problem.shape.kernel_h, problem.shape.kernel_w) <= _NARROW  # wider filters have other kernels
    if problem.direction == "bwd_weight" and traits.whole_filter_tiles and narrow:
        m, tiles = problem.taps * _FILTER_TILE * ceil(c_in / _FILTER_TILE), ((_FILTER_TILE, _FILTER_TILE),)
    compute_s = max(
        blocks_time(costs.residency, engine, m, n, k, tiles, batch=groups, splits=splits, split_s=split_s),
        rates.energy_time(problem.gpu, kernel.precision, float(kernel.flop)),
    )
    memory_s = n_bytes / problem.bandwidth_Bps
    turned: tuple[float, ...] = (read_bytes,) if problem.direction == "fwd" else (read_bytes, written_bytes)
    if kernel.channels_last or early or (problem.taps == 1 and problem.unit_stride):
        turned = ()
    copies_s = sum(memory_time(problem.gpu, size, size) for size in turned) / costs.transform
    helpers = 0 if problem.direction == "fwd" else 2  # kernels that rearrange filters or zero the result
    fixed_s = costs.tensor_kernel_s + helpers * problem.next_kernel_s
    time_s = at_least(compute_s, memory_s) + zeros_s + copies_s + fixed_s
    return ConvolutionAlgorithm(time_s, "tensor cores", compute_s, memory_s + copies_s, n_bytes + 2 * sum(turned))


def warp_gemm(problem: Problem, kernel: Convolution) -> ConvolutionAlgorithm:
    """Return the implicit product in 16 bits since Hopper and cuDNN 9: ``sm90_xmma_..._warpgroupsize``, or cuBLAS's."""
    costs, gpu, shape, size, taps = problem.costs, problem.gpu, problem.shape, problem.element_bytes, problem.taps
    aligned, few = shape.c_in % _CHANNELS == shape.c_out % _CHANNELS == 0, shape.c_in == _FEWEST_CHANNELS
    step = ways.NARROW if aligned else _TAP_CHANNELS
    c_in, c_out = (_CHANNELS * ceil(c / _CHANNELS) for c in (problem.c_in, problem.c_out))
    images, result = float(size * c_in * problem.pixels_touched), float(size * c_out * problem.pixels_out)
    filters, weight = float(size * c_in * c_out * taps), problem.direction == "bwd_weight"
    if problem.direction == "fwd":
        sides = problem.pixels_out, c_out, _of_taps(c_in, taps, few, step)
        moved = images, filters, result
    elif weight:
        sides = c_out, _of_taps(c_in, taps, step=step if aligned else _CHANNELS), problem.pixels_out
        moved = result, images, filters
    else:
        places, length = min(problem.pixels_in, problem.pixels_out * taps), problem.taps_of_a_place
        sides = places, c_in, _of_taps(c_out, length, step=step)
        moved = result, filters, float(size * c_in * problem.pixels_in)
    product = Gemm(*sides, kernel.precision, shape.groups, "TN" if weight else "NN")
    fixed_s, implicit = 0.0, None
    if taps > 1 or not problem.unit_stride or not aligned:
        shares = (costs.implicit, costs.narrow) if aligned else (1.0, 1.0)
        fixed_s = problem.next_kernel_s
        implicit = ways.Implicit(
            float(kernel.flop), moved[:2], moved[2], shares, costs.parts_s if weight else 0.0, not aligned
        )
    found = tensor_product_time(gpu, product, implicit)
    turned: tuple[float, ...] = (images,) if problem.direction == "fwd" else (images, result)
    if kernel.channels_last or (taps == 1 and problem.unit_stride):
        turned = ()
    copies_s = sum(memory_time(gpu, each * shape.groups, each * shape.groups) for each in turned) / costs.transform
    for pixels, padded, asked in ((problem.pixels_in, c_in, problem.c_in), (problem.pixels_out, c_out, problem.c_out)):
        if padded > asked and not aligned and not few:  # zeroed first
            elements = pixels * padded * shape.groups
            copies_s += issue_time(gpu, elements, costs.pad_slots) + memory_time(gpu, 0.0, float(size * elements))
            copies_s += 2 * problem.next_kernel_s
    n_bytes = (sum(moved)) * shape.groups + 2 * sum(turned)
    time_s, memory_s = found.time_s + copies_s + fixed_s, found.memory_s + copies_s
    return ConvolutionAlgorithm(time_s, "tensor cores", found.compute_s, memory_s, n_bytes)


def _of_taps(channels: int, taps: int, packed: bool = False, step: int = _TAP_CHANNELS) -> int:
    """Return the length of a reduction over *channels* of each tap in whole steps; *packed*: of several taps."""
    if packed and taps > 1 and channels == _CHANNELS:
        return _TAP_CHANNELS * ceil(channels * taps / _TAP_CHANNELS)
    return channels if taps == 1 else taps * step * ceil(channels / step)


def byte_gemm(problem: Problem, rate_flops_per_s: float) -> ConvolutionAlgorithm:
    """Return the forward product of bytes of cuDNN 6 and 7: one tile, whole waves, a reduction never split."""
    costs, gpu, shape = problem.costs, problem.gpu, problem.shape
    k = problem.taps * _TAP_CHANNELS * ceil(problem.c_in / _TAP_CHANNELS)
    blocks = ceil(problem.c_out / _BYTE_TILE) * ceil(problem.pixels_out / _BYTE_TILE) * shape.groups
    flop = 2.0 * _BYTE_TILE**2 * (k + costs.prologue_k) * ceil(blocks / gpu.sm_count) * gpu.sm_count
    compute_s, memory_s = flop / (rate_flops_per_s * costs.tensor), problem.bytes / problem.bandwidth_Bps
    time_s = at_least(compute_s, memory_s) + costs.kernel_s
    return ConvolutionAlgorithm(time_s, "implicit GEMM of bytes", compute_s, memory_s, problem.bytes)


def direct(problem: Problem, channels_last: bool) -> ConvolutionAlgorithm:
    """Return the direct sum over taps, one thread per pixel of the result, as depthwise and grouped kernels do."""
    costs, shape, gpu = problem.costs, problem.shape, problem.gpu
    compute_s = shape.flop / (problem.rate_flops_per_s * costs.direct)
    written = {"fwd": shape.output_elements, "bwd_data": shape.input_elements, "bwd_weight": shape.weight_elements}
    results = written[problem.direction]
    if _by_torch(problem, channels_last):
        compute_s = max(compute_s, _own_clocks(problem, results) / (gpu.sm_count * gpu.light_clock_Hz))
    written_bytes = problem.element_bytes * results
    memory_s = memory_time(gpu, problem.bytes - written_bytes, written_bytes) / costs.direct_bandwidth
    time_s = at_least(compute_s, memory_s) + costs.kernel_s
    return ConvolutionAlgorithm(time_s, "direct", compute_s, memory_s, problem.bytes)


def _by_torch(problem: Problem, channels_last: bool) -> bool:
    """Return whether PyTorch's own kernels compute it: depthwise, by planes, in fp32 or with a filter cuDNN lacks."""
    depthwise = problem.gpu.vendor == "nvidia" and 1 < problem.shape.groups == problem.shape.c_in
    lacking = problem.element_bytes == ELEMENT_BYTES["fp32"] or not _unrolled(problem)
    return depthwise and not channels_last and lacking


def _unrolled(problem: Problem) -> bool:
    """Return whether a kernel is compiled for the size of the filter."""
    return problem.shape.kernel_h == problem.shape.kernel_w and problem.shape.kernel_w in _UNROLLED


def _own_clocks(problem: Problem, results: int) -> float:
    """Return the clocks of one SM in PyTorch's kernels (``aten/src/ATen/native/cuda/DepthwiseConv2d.cu``)."""
    costs, multiplied = problem.costs, problem.shape.flop / 2
    if problem.direction == "bwd_weight":
        return multiplied * costs.tap_clocks * costs.tap_of_filters
    tap_clocks = costs.unrolled_tap_clocks if _unrolled(problem) else costs.tap_clocks
    return results * costs.place_clocks + multiplied * tap_clocks


def _split_s(problem: Problem, elements: int | None = None) -> float:
    """Return the seconds to write and read one more set of partial sums in fp32."""
    count = problem.shape.weight_elements if elements is None else elements
    return problem.costs.split_share * 2 * 4 * count / problem.bandwidth_Bps
