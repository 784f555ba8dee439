"""What convolution algorithms share; Winograd's and Fourier's (docs/decisions/kernels.md)."""

from collections.abc import Sequence
from math import ceil, prod
from typing import NamedTuple

from simulator.devices.gpu import TILES, Gpu
from simulator.devices.gpu.memory import achieved_bandwidth
from simulator.devices.gpu.rates import compute_rate
from simulator.records import dataclass
from simulator.workload.operators import Convolution

_TENSOR_TILE = (256, 128)  # the largest common one on tensor cores
_FULL_TILE = 64.0  # multiplications per loaded element of the largest common tile on fp32 lanes, 128 x 128
_STEP = 8  # elements of the reduction per step of a block
_SHORTEST_SPLIT = 64  # a reduction is not split into parts shorter than this
_ENOUGH_BLOCKS = 4  # per SM: beyond this, more splits do not help


@dataclass(frozen=True, slots=True)
class Engine:
    """The units that compute: the number of SMs, their combined rate, and the costs of tiles on them."""

    sm_count: int
    rate_flops_per_s: float
    tile_intensity: float
    prologue_k: float
    full_block: int = 128 * 128  # half of the result elements that an SM holds at a time
    full_intensity: float = _FULL_TILE  # of the largest tile, which runs at the reference rate


def tensor_engine(sm_count: int, rate_flops_per_s: float, tile_intensity: float, prologue_k: float) -> Engine:
    """Return the engine of tensor cores, whose largest tiles are larger than those of fp32 lanes."""
    tall, wide = _TENSOR_TILE
    return Engine(sm_count, rate_flops_per_s, tile_intensity, prologue_k, tall * wide, tall * wide / (tall + wide))


def blocks_time(
    residency: float,
    engine: Engine,
    m: int,
    n: int,
    k: int,
    tiles: Sequence[tuple[int, int]],
    *,
    batch: int = 1,
    depth: int = 1,
    splits: Sequence[int] = (1,),
    split_s: float = 0.0,
) -> float:
    """Return the seconds of *batch* products m x n over k with the best of *tiles*; the SM with most blocks sets them.

    - ``depth``: result elements at each position of a tile (the 16 of a Winograd tile).
    - ``splits``: blocks that share a reduction; each part but the first costs *split_s* seconds.
    - ``residency``: half of the blocks with which an SM hides half of its latencies.
    """
    steps = _STEP * ceil(k / _STEP)
    flops_per_s = engine.rate_flops_per_s / engine.sm_count
    half, full_tile = engine.tile_intensity, engine.full_intensity
    best = float("inf")
    for tm, tn in tiles:
        intensity = full_tile if depth > 1 else tm * tn / (tm + tn)
        efficiency = intensity / (intensity + half) * (full_tile + half) / full_tile
        elements = tm * tn * depth
        size = elements / engine.full_block
        most = max(1.0, 2.0 / size)
        blocks = -(-m // tm) * -(-n // tn) * batch
        for split in splits:
            if split > splits[0] and steps < split * _SHORTEST_SPLIT:
                break
            per_sm = split * blocks / engine.sm_count
            rounds = ceil(per_sm)
            resident = size * min(rounds, most)
            hidden = resident / (resident + residency) * (2.0 + residency) / 2.0
            flop = 2.0 * elements * (steps / split + engine.prologue_k)
            time_s = rounds * flop / (flops_per_s * efficiency * hidden) + (split - 1) * split_s
            best = min(best, time_s)
            if per_sm > _ENOUGH_BLOCKS:
                break
    return best


SPLITS = (1, 2, 4, 8, 16, 32, 64)


class ConvolutionAlgorithm(NamedTuple):
    """An algorithm and its time; ``compute_s`` and ``memory_s`` are parts of it that may overlap."""

    time_s: float
    name: str
    compute_s: float
    memory_s: float
    bytes: float


NARROW = 64  # the fewest rows and columns of a tile of implicit products since Hopper


class Implicit(NamedTuple):
    """What an implicit product has instead of its matrices: images, whose columns are formed on their way to an SM."""

    flop: float  # without those of zeros, which take no energy
    read_bytes: tuple[float, float]  # of A and B in memory
    written_bytes: float
    shares: tuple[float, float]  # of the rate, that a tile reaches, and besides one of ``NARROW`` rows or columns
    parts_s: float  # of the passes around parts of k
    synchronous: bool  # with Ampere's instructions

    def share(self, side: int) -> float:
        """Return the share of the rate that a tile with this shorter side reaches; 0: there is none."""
        return self.shares[0] * (self.shares[1] if side == NARROW else 1.0) if side >= NARROW else 0.0


class Problem:
    """*kernel* on the fp32 lanes of *gpu*: a direction of a convolution, with the figures that algorithms need."""

    def __init__(self, gpu: Gpu, kernel: Convolution, element_bytes: int) -> None:
        costs, shape, backward = gpu.constants["convolution"], kernel.shape, kernel.direction == "bwd_data"
        self.gpu, self.costs, self.shape, self.direction = gpu, costs, shape, kernel.direction
        self.element_bytes = element_bytes
        share = lane_share(gpu, kernel.direction)
        self.rate_flops_per_s = share * compute_rate(gpu, "fp32", costs.energy)
        self.hot_rate_flops_per_s = share * compute_rate(gpu, "fp32")  # of kernels with a large product's power
        self.bandwidth_Bps = achieved_bandwidth(gpu)
        self.taps = shape.kernel_h * shape.kernel_w
        self.c_in, self.c_out = shape.c_in // shape.groups, shape.c_out // shape.groups
        # Channels of one group: of the result and the reduction; bwd_weight: of the result's gradient and the images.
        self.rows, self.reduction = (self.c_in, self.c_out) if backward else (self.c_out, self.c_in)
        self.height, self.width = (shape.h_in, shape.w_in) if backward else (shape.h_out, shape.w_out)
        self.pixels_in = shape.batch * shape.h_in * shape.w_in
        self.pixels_out = shape.batch * shape.h_out * shape.w_out
        self.pixels_touched = self.pixels_in
        if self.taps == 1 and not backward:  # whole rows, as sectors include the skipped pixels
            self.pixels_touched = min(self.pixels_in, self.pixels_out * shape.stride_w)
        elements = self.pixels_touched * shape.c_in + shape.weight_elements + shape.output_elements
        self.bytes = element_bytes * elements  # each tensor once, without the pixels that a stride skips
        self.unit_stride = shape.stride_h == shape.stride_w == 1
        self.next_kernel_s = gpu.constants["memory"].start_s  # of a kernel that follows another, besides its work
        # The most taps summed into one pixel of the images' gradient: those of its phase of the stride.
        self.taps_of_a_place = ceil(shape.kernel_h / shape.stride_h) * ceil(shape.kernel_w / shape.stride_w)

    def engine(self, share: float) -> Engine:
        """Return the fp32 lanes at a *share* of their rate."""
        costs = self.costs
        return Engine(self.gpu.sm_count, self.rate_flops_per_s * share, costs.tile_intensity, costs.prologue_k)


def at_least(compute_s: float, memory_s: float) -> float:
    """Return the time of overlapping computation and transfer: the longer, or somewhat more where both are close."""
    return float((compute_s**4 + memory_s**4) ** 0.25)


def lane_share(gpu: Gpu, direction: str = "fwd") -> float:
    """Return the efficiency of the fp32 lanes relative to Pascal's; AMD's have constants of their own."""
    costs, traits = gpu.constants["convolution"], gpu.traits
    if traits.cudnn == 5:
        share = costs.kepler if traits.unfed_lanes else 1.0
        return share if direction == "bwd_weight" else costs.early * share
    return costs.separate_integers if traits.integers == "own" else 1.0


# -- Winograd and Fourier ------------------------------------------------------------


_FUSED_DEPTH = 16
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
        filters_s = 0.0
    else:  # tiles of 2 x 2 that blocks compute, including those past the images' edges, at the best cut
        parts, share, filters_s = 1, costs.winograd_fused, _filters_time(problem, _FUSED_DEPTH)
        sides = (shape.batch, 1), (problem.height, 2), (problem.width, 2)  # each with what a tile has of it
        cuts = (zip(cut, sides, strict=True) for cut in TILES["fused_places"])
        tiles = min(prod(n * -(-side // (n * own)) for n, (side, own) in cut) for cut in cuts)
    rate = problem.hot_rate_flops_per_s * share
    engine = Engine(problem.gpu.sm_count, rate, costs.tile_intensity, costs.winograd_fused_prologue_k)
    k = problem.reduction * parts
    compute_s = blocks_time(costs.residency, engine, problem.rows, tiles, k, TILES["fused"], depth=_FUSED_DEPTH)
    memory_s = problem.bytes / problem.bandwidth_Bps
    time_s = at_least(compute_s, memory_s) + filters_s + costs.kernel_s + problem.next_kernel_s
    return ConvolutionAlgorithm(time_s, "Winograd 2x2, fused", compute_s, memory_s, problem.bytes)


def _filters_time(problem: Problem, points: int) -> float:
    """Return the seconds to read the filters and write them transformed, with *points* elements each."""
    numbers = problem.rows * problem.reduction * (problem.taps + points)
    return problem.element_bytes * numbers / (problem.bandwidth_Bps * problem.costs.transform)


def _parts(kernel: int, stride: int) -> int:
    """Return the number of 3-tap, stride-1 filters into which one of *kernel* taps is cut, along one axis."""
    return stride * ceil(ceil(kernel / stride) / 3)


def winograd(problem: Problem) -> ConvolutionAlgorithm:
    """Return F(4 x 4, 3 x 3), or F(2 x 2, 5 x 5), with its transforms in separate kernels."""
    side, name = (4, "Winograd 4x4") if problem.taps == 9 else (2, "Winograd 2x2, 5x5")
    tiles = problem.shape.batch * ceil(problem.height / side) * ceil(problem.width / side)
    return _transformed(problem, problem.costs.winograd_fused, tiles, _POINTS, 1, name)


def fft_tiles(problem: Problem) -> ConvolutionAlgorithm:
    """Return the product of the Fourier transforms of 32 x 32 tiles that overlap by the filter."""
    shape = problem.shape
    rows = ceil(problem.height / (_FFT_SIDE + 1 - shape.kernel_h))
    columns = ceil(problem.width / (_FFT_SIDE + 1 - shape.kernel_w))
    tiles = shape.batch * rows * columns
    return _transformed(problem, problem.costs.fft, tiles, _FREQUENCIES, _COMPLEX, "FFT 32x32")


def _transformed(problem: Problem, share: float, tiles: int, points: int, work: int, name: str) -> ConvolutionAlgorithm:
    """Return *points* products over channels (``bwd_weight``: over tiles), with transforms before and after."""
    costs = problem.costs
    m, n, k = problem.rows, tiles, problem.reduction
    if problem.direction == "bwd_weight":
        n, k = k, n
    compute_s = blocks_time(costs.residency, problem.engine(share), m, n, k, TILES["any"], batch=points * work)
    points *= 2 if work == _COMPLEX else 1
    image_bytes = problem.element_bytes * points * tiles * (problem.rows + problem.reduction)
    filter_bytes = problem.element_bytes * points * problem.rows * problem.reduction
    memory_s = (image_bytes + filter_bytes) / problem.bandwidth_Bps
    passes_s = (problem.bytes + image_bytes) / (problem.bandwidth_Bps * costs.transform)
    passes_s += _filters_time(problem, points)
    n_bytes = problem.bytes + 2 * (image_bytes + filter_bytes)
    time_s = at_least(compute_s, memory_s) + passes_s + costs.kernel_s + 3 * problem.next_kernel_s
    return ConvolutionAlgorithm(time_s, name, compute_s, memory_s + passes_s, n_bytes)
