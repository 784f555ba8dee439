"""Tiles: how a library cuts a product of matrices into pieces, each of which one SM computes.

Which tiles there are follows the names of the kernels that profilers show (``maxwell_sgemm_128x64_tn``,
``volta_sgemm_32x128_nn``, ``ampere_sgemm_128x128_nn``): few in fp32, and from Ampere on a batch of
products in fp32 runs in tiles of 128 x 128 however small its matrices are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from simulator.devices.gpu.clock import POWER, PowerCosts, computes_on_tensor_cores, sustained_clock
from simulator.devices.gpu.gpu import Gpu
from simulator.devices.gpu.product import Tile
from simulator.devices.gpu.rates import arithmetic_rate
from simulator.workload.precision import Precision

__all__ = ["GEMM", "GemmConstants", "tiles_for"]

# (columns, rows) of the row-major result, the larger first: columns are what BLAS calls m.
_SIDES = (
    *((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (128, 32), (32, 128)),
    *((64, 32), (32, 64), (32, 32), (128, 16), (16, 128), (128, 8), (8, 128)),
)


@dataclass(frozen=True, slots=True, eq=False)
class GemmConstants:
    """Constants of products, the same for all GPUs; fitted by ``validate.fit.operators.gemm``.

    Those of tensor (matrix) cores are of Volta, Turing and AMD's; NVIDIA's since Ampere have a model of their own.

    A tile of r x c keeps its lanes busy for 1 / (1 + cost (1/r + 1/c)) of the time: operands are fetched
    once a row and column, and multiplied r c times.  Two objects are never the same, so that tiles can be
    remembered by them.
    """

    fetch: float = 15.4  # with 128 lanes an SM, that share what shared memory delivers; of fewer lanes so much less
    fetch_volta: float = 5.05  # Volta and Turing, whose kernels are tuned by hand
    transpose: float = 6.19  # besides, where both operands are turned on their way to the SM
    straight_volta: float = 1.75  # those are written for operands along k: cost of any other layout
    unaligned: float = 0.913  # before Ampere, of the rate: rows that start at odd elements, which vectors do not fit
    fetch_other: float = 9.67  # other makers
    rate_other: float = 0.747  # of peak, at best
    rate_matrix_other: float = 0.645  # on matrix cores: the best products known of MI300X, MI325X and MI355X
    fetch_tensor: float = 4.16
    alone: float = 1.41e04  # elements of all tiles on an SM that hide each other's latencies
    alone_tensor: float = 6.88e03
    tile_clocks: float = 452  # start and end of a tile
    tile_clocks_tensor: float = 1.06e03
    overlap: float = 2.09  # exponent: arithmetic, memory and caches together take the norm of their times
    bandwidth_share: float = 0.984  # of what streams reach
    l2_clock_bytes: float = 25  # from L2 to an SM, in a clock
    thin_share: float = 0.0314  # of peak, where a product of a few rows or columns runs as dot products
    l2_share: float = 0.5  # of L2, for operands
    wave: float = 1.06  # tiles at once on an SM that share operands
    pages_early: float = 0.571  # of a tile's rows whose translations an SM holds: to Pascal
    page_sharpness_early: float = 1.84
    pages_late: float = 3.85  # since Volta
    page_sharpness_late: float = 4.05
    idle_early: float = 0.689  # share of what the last wave leaves idle, that is lost: to Pascal
    idle_late: float = 0.321  # since Ampere, and other makers; all of it on Volta, Turing and matrix cores
    split_share: float = 0.848  # of the rate, where k is split: from Ampere on, on fp32 lanes
    walk_again: float = 0.221  # what an operand counts there whose rows every row of tiles meets again
    walk_held_bytes: float = 1.08e08  # operands smaller than this have all their translations near by
    walk_reach_bytes: float = 6.27e08  # operands larger than this are beyond what the translations of the chip reach
    walk_near: float = 0.458  # what a miss costs within that reach, against one beyond
    walks_early: float = 2.48  # translations in a clock of the whole GPU, to Pascal
    walks_late: float = 12.8  # since Volta
    start_s: float = 4.07e-06  # launch to first instruction, and end
    reduce_early_s: float = 5.17e-05  # where k is split: the kernel that adds up, and how rarely libraries do it
    reduce_s: float = 4.01e-06  # since Volta
    power: PowerCosts = POWER


GEMM = GemmConstants()


@lru_cache(maxsize=4096)
def tiles_for(
    gpu: Gpu, precision: Precision, layout: str, batched: bool, aligned: bool = True, constants: GemmConstants = GEMM
) -> tuple[Tile, ...]:
    """Return the tiles that a library has for products in *precision* of *layout*, the largest first."""
    tensor = computes_on_tensor_cores(gpu, precision)
    clock_Hz = sustained_clock(gpu, precision, constants.power)
    sm_rate = arithmetic_rate(gpu, precision) / gpu.sm_count * clock_Hz / gpu.boost_clock_Hz
    clocks, elements = (
        (constants.tile_clocks_tensor, constants.alone_tensor) if tensor else (constants.tile_clocks, constants.alone)
    )
    tiles = []
    for columns, rows in _SIDES:
        if not tensor and not _in_library(gpu, columns, rows, layout, batched):
            continue
        share = _busy_share(gpu, tensor, columns, rows, layout, aligned, constants)
        alone = elements / (columns * rows)
        tiles.append(Tile(columns, rows, sm_rate * share, alone, clocks / clock_Hz * min(1.0, 1.0 / alone)))
    return tuple(tiles)


def _in_library(gpu: Gpu, columns: int, rows: int, layout: str, batched: bool) -> bool:
    """Return whether there is a kernel with the tile for arithmetic without tensor cores."""
    kernels = gpu.traits.kernels
    if kernels == "amd":
        return max(columns, rows) < 256
    early, volta = kernels == "maxwell", kernels == "volta"
    if early and gpu.traits.small_sms and layout == "NT" and not batched:
        # P100: its times step with the size of the result as tiles of 128 x 64 do, not as larger ones would.
        return (columns, rows) in ((128, 64), (64, 64))
    if batched and not volta:
        return (columns, rows) == (128, 128) or (early and (columns, rows) == (128, 64))
    if max(columns, rows) == 256:
        return not early and not volta
    if early and rows < 64:
        return False
    if (columns, rows) == (128, 64):
        return early or volta
    return (columns, rows) != (64, 128)


def _busy_share(
    gpu: Gpu,
    tensor: bool,
    columns: int,
    rows: int,
    layout: str,
    aligned: bool,
    c: GemmConstants,
) -> float:
    fetches, kernels = 1.0 / columns + 1.0 / rows, gpu.traits.kernels
    if tensor:
        rate = c.rate_matrix_other if kernels == "amd" else 1.0
        return rate / (1.0 + c.fetch_tensor * fetches)
    if kernels == "amd":
        return c.rate_other / (1.0 + c.fetch_other * fetches)
    if kernels == "volta":
        fetch, turn = c.fetch_volta, 0.0 if layout == "NT" else c.straight_volta
    else:
        fetch = c.fetch
        turn = c.transpose if layout == "NT" else 0.0
    slow = not aligned and kernels != "ampere"
    return (c.unaligned if slow else 1.0) / (1.0 + (fetch * gpu.lanes_per_sm / 128.0 + turn) * fetches)
