"""A matrix product cut into tiles, one thread block each, distributed over the SMs."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from simulator.constants import constants
from simulator.records import dataclass


@constants("convolution")
@dataclass(frozen=True, slots=True)
class ConvolutionCosts:
    """Shares of the peak rate that inner loops reach, and the overheads around them."""

    tile_intensity: float
    quantisation: float
    residency: float
    prologue_k: float
    gemm: float
    early: float
    kepler: float
    separate_integers: float
    backward_data: float
    backward_weight: float
    backward_weight_1x1: float
    split_share: float
    winograd_fused: float
    winograd_fused_prologue_k: float
    fft: float
    transform: float
    weight_transform: float
    spread: float
    energy: float
    direct: float
    direct_bandwidth: float
    tensor: float
    tensor_tile_intensity: float
    tensor_kernel_s: float
    layout: float
    layout_late: float
    hopper: float
    amd_tensor: float
    amd_gemm: float
    amd_backward_data: float
    amd_winograd: float
    amd_backward_weight: float
    amd_backward_weight_direct: float
    amd_spread: float
    amd_image_s: float
    kernel_s: float
    next_kernel_s: float


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
            full = 1.0 if per_sm < 1.0 else per_sm + costs.quantisation * (rounds - per_sm)
            resident = size * min(rounds, most)
            hidden = resident / (resident + residency) * (2.0 + residency) / 2.0
            flop = 2.0 * elements * (steps / split + engine.prologue_k)
            time_s = full * flop / (flops_per_s * efficiency * hidden) + (split - 1) * split_s
            best = min(best, time_s)
            if per_sm > _ENOUGH_BLOCKS:
                break
    return best
