"""What convolution algorithms share: the shape as one direction sees it, a candidate with its time, its thread blocks.

A matrix product is cut into tiles, one thread block each, distributed over the SMs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Literal, NamedTuple

from simulator.constants import constants
from simulator.devices.gpu import Gpu
from simulator.devices.gpu.memory import MemoryCosts, achieved_bandwidth
from simulator.devices.gpu.rates import compute_rate
from simulator.records import dataclass
from simulator.workload.operators import Conv2d, Convolution


@constants("convolution")
@dataclass(frozen=True, slots=True)
class ConvolutionCosts:
    """Shares of the peak rate that inner loops reach, and the overheads around them."""

    tile_intensity: float
    residency: float
    prologue_k: float
    gemm: float
    early: float
    kepler: float
    separate_integers: float
    backward: float
    backward_weight_1x1: float
    split_share: float
    winograd_fused: float
    winograd_fused_prologue_k: float
    fft: float
    transform: float
    spread: float
    energy: float
    direct: float
    direct_bandwidth: float
    place_clocks: float
    tensor: float
    tensor_tile_intensity: float
    tensor_kernel_s: float
    hopper: float
    amd_tensor: float
    amd_gemm: float
    amd_winograd: float
    amd_backward_weight_direct: float
    kernel_s: float


ANY_TILES = ((128, 128), (128, 64), (64, 128), (64, 64), (128, 32), (32, 128))

_TENSOR_TILE = (256, 128)  # the largest common one on tensor cores
_FULL_TILE = 64.0  # multiplications per loaded element of the largest common tile on fp32 lanes, 128 x 128
_STEP = 8  # elements of the reduction per step of a block
_SHORTEST_SPLIT = 64  # a reduction is not split into parts shorter than this
_ENOUGH_BLOCKS = 4  # per SM: beyond this, more splits do not help


@dataclass(frozen=True, slots=True)
class Engine:
    """The units that compute: the number of SMs, their combined rate, and the costs of tiles on them.

    ``full_block`` is half of the number of result elements that an SM holds at a time.
    """

    sm_count: int
    rate_flops_per_s: float
    tile_intensity: float
    prologue_k: float
    full_block: int = 128 * 128
    full_intensity: float = _FULL_TILE  # of the largest tile, which runs at the reference rate


def tensor_engine(sm_count: int, rate_flops_per_s: float, tile_intensity: float, prologue_k: float) -> Engine:
    """Return the engine of tensor cores, whose largest tiles are larger than those of fp32 lanes."""
    tall, wide = _TENSOR_TILE
    return Engine(sm_count, rate_flops_per_s, tile_intensity, prologue_k, tall * wide, tall * wide / (tall + wide))


def blocks_time(
    costs: ConvolutionCosts,
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
    """Return the time, in seconds, of ``batch`` products of size m x n with a reduction over k, with the best tile.

    A tile of ``tm x tn`` loads tm + tn elements for tm tn multiplications in each step, so small tiles compute more
    slowly.  The SM with the most blocks sets the time.  A second resident block hides an SM's latencies; one block
    alone runs slower.  *depth* is the number of result elements at each position of a tile (the 16 of a Winograd
    tile).  With *splits*, several blocks share a reduction; each part but the first costs *split_s* seconds.
    """
    steps = _STEP * ceil(k / _STEP)
    flops_per_s = engine.rate_flops_per_s / engine.sm_count
    half, residency, full_tile = engine.tile_intensity, costs.residency, engine.full_intensity
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


@dataclass(frozen=True, slots=True)
class Problem:
    """One direction of a convolution on a device, with the figures that every algorithm needs.

    ``rows`` and ``reduction`` are channels of one group: of the result, and of the reduction; for ``bwd_weight``,
    those of the result's gradient and of the images.  ``height`` and ``width`` are those of the output
    (``bwd_weight``: of the result's gradient).  ``hot_rate_flops_per_s`` is the rate of kernels that draw as much power
    as a large product.  ``bytes`` counts each tensor once, without the pixels that a stride skips.
    """

    gpu: Gpu
    costs: ConvolutionCosts
    shape: Conv2d
    direction: Literal["fwd", "bwd_data", "bwd_weight"]
    element_bytes: int
    rate_flops_per_s: float
    hot_rate_flops_per_s: float
    bandwidth_Bps: float
    c_in: int
    c_out: int
    taps: int
    pixels_in: int
    pixels_out: int
    pixels_touched: int
    rows: int
    reduction: int
    height: int
    width: int
    bytes: int

    @property
    def unit_stride(self) -> bool:
        """Whether the stride is 1 in both directions."""
        return self.shape.stride_h == 1 and self.shape.stride_w == 1

    @property
    def next_kernel_s(self) -> float:
        """Time of a kernel that follows another, besides its work, in seconds."""
        return self.gpu.constants(MemoryCosts).start_s

    @property
    def taps_of_a_place(self) -> int:
        """Largest number of taps summed into one pixel of the images' gradient: those of its phase of the stride."""
        shape = self.shape
        return ceil(shape.kernel_h / shape.stride_h) * ceil(shape.kernel_w / shape.stride_w)


def at_least(compute_s: float, memory_s: float) -> float:
    """Return the time of overlapping computation and transfer: the longer, or somewhat more where both are close."""
    return float((compute_s**4 + memory_s**4) ** 0.25)


def lane_share(gpu: Gpu, costs: ConvolutionCosts, direction: str = "fwd") -> float:
    """Return the efficiency of the fp32 lanes relative to Pascal's; AMD's have constants of their own."""
    traits = gpu.traits
    if traits.cudnn == 5:
        share = costs.kepler if traits.unfed_lanes else 1.0
        return share if direction == "bwd_weight" else costs.early * share
    return costs.separate_integers if traits.integers == "own" else 1.0


def problem(gpu: Gpu, kernel: Convolution, element_bytes: int) -> Problem:
    """Return *kernel* as a problem for the fp32 lanes of *gpu*."""
    costs = gpu.constants(ConvolutionCosts)
    shape, direction = kernel.shape, kernel.direction
    share = lane_share(gpu, costs, direction)
    c_in, c_out = shape.c_in // shape.groups, shape.c_out // shape.groups
    backward = direction == "bwd_data"
    taps = shape.kernel_h * shape.kernel_w
    pixels_in, pixels_out = shape.batch * shape.h_in * shape.w_in, shape.batch * shape.h_out * shape.w_out
    touched = pixels_in
    if taps == 1 and not backward:  # whole rows, as sectors include the skipped pixels
        touched = min(pixels_in, pixels_out * shape.stride_w)
    return Problem(
        gpu=gpu,
        costs=costs,
        shape=shape,
        direction=direction,
        element_bytes=element_bytes,
        rate_flops_per_s=share * compute_rate(gpu, "fp32", costs.energy),
        hot_rate_flops_per_s=share * compute_rate(gpu, "fp32"),
        bandwidth_Bps=achieved_bandwidth(gpu),
        c_in=c_in,
        c_out=c_out,
        taps=taps,
        pixels_in=pixels_in,
        pixels_out=pixels_out,
        pixels_touched=touched,
        rows=c_in if backward else c_out,
        reduction=c_out if backward else c_in,
        height=shape.h_in if backward else shape.h_out,
        width=shape.w_in if backward else shape.w_out,
        bytes=element_bytes * (touched * shape.c_in + shape.weight_elements + shape.output_elements),
    )
