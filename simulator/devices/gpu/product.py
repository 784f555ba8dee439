"""How a library cuts a matrix product into tiles, each computed by one SM, and what the product models share.

The available tiles follow the kernel names that profilers show (``maxwell_sgemm_128x64_tn``,
``volta_sgemm_32x128_nn``, ``ampere_sgemm_128x128_nn``): fp32 has few, and on Ampere and Ada batched products in fp32
use tiles of 128 x 128 however small their matrices are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache

from simulator.constants import constants
from simulator.devices import Bound, bound_of
from simulator.devices.gpu import Gpu
from simulator.devices.gpu.memory import achieved_bandwidth, resident_share
from simulator.devices.gpu.rates import arithmetic_rate, computes_on_tensor_cores, sustained_clock
from simulator.records import dataclass
from simulator.workload.precision import Precision

_WAVES = (1, 2, 4)  # numbers of waves that splitting k may fill
_MOST_PARTS = 64
_LEAST_K = 64  # smallest k of a part


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile on a device: its sides, the rate of an SM that computes it, and its overheads."""

    columns: int
    rows: int
    sm_flops_per_s: float
    alone: float  # tiles that keep an SM fully busy; fewer take as long as this many
    edge_s: float  # start and end of a tile, in seconds


@dataclass(frozen=True, slots=True)
class ProductTime:
    """The time of a product, its tile and number of parts of k, and the time that each resource alone would take."""

    time_s: float
    tile: Tile
    parts: int
    compute_s: float
    memory_s: float
    l2_s: float
    walk_s: float  # address translation
    latency_s: float = 0.0  # memory latency of the stages, one after the other
    piece_bytes: int = 16  # size of operand transfers, where it depends on the alignment of rows
    energy_s: float = 0.0  # in which the board supplies its energy

    @property
    def bound(self) -> Bound:
        """The resource that takes most of the time."""
        return bound_of(self.time_s, max(self.compute_s, self.energy_s), max(self.memory_s, self.l2_s, self.walk_s))


Way = tuple[float, Tile, int, float, float, float, float]  # time, tile, parts of k and the times of four resources


class PlacedProduct:
    """A product on a device: the figures that do not depend on how it is cut.  A and B are those of one product.

    *sides*: m, n, k and batch.  *shares*: of the memory's bandwidth and of L2's bytes that it has.
    """

    def __init__(
        self,
        gpu: Gpu,
        sides: tuple[int, int, int, int],
        element_bytes: int,
        written_bytes: float,
        shares: tuple[float, float],
    ) -> None:
        self.m, self.n, self.k, self.batch = m, n, k, batch = sides
        self.element_bytes, self.written_bytes, self.sm_count = element_bytes, written_bytes, gpu.sm_count
        self.read_bytes = float(m * k * element_bytes), float(n * k * element_bytes)  # of A and B
        operands = sum(self.read_bytes)
        # The share of operands that later waves read anew.
        self.missed = 1.0 / (1.0 + (max(gpu.l2_bytes * shares[1], 1.0) / max(operands, 1.0)) ** 2)
        # Successive products on the same operands find them in L2, as far as it holds them all.
        self.hits = resident_share(gpu, batch * (operands + written_bytes))
        self.memory_Bps = achieved_bandwidth(gpu, operands / (operands + written_bytes)) * shares[0]

    def cut(self, tile: Tile, parts: int, step_k: int) -> tuple[int, int, float, int]:
        """Return how it is cut: k of a part, the tiles, and the bytes moved in memory and fetched per row of a tile."""
        rows, columns = -(-self.m // tile.rows), -(-self.n // tile.columns)
        # A wave covers about as many rows as columns of C, and reads each of them once.
        tall = min(max(math.sqrt(self.sm_count * tile.columns / tile.rows), 1.0), rows)
        wide = min(max(self.sm_count / tall, 1.0), columns)
        tall = min(max(self.sm_count / wide, 1.0), rows)
        left, right = self.read_bytes
        read = left * (1.0 + (columns / wide - 1.0) * self.missed)
        read += right * (1.0 + (rows / tall - 1.0) * self.missed)
        k = -(-self.k // (parts * step_k)) * step_k
        tiles = self.batch * rows * columns * parts
        return k, tiles, self.batch * (read + self.written_bytes), tiles * k * self.element_bytes

    def fastest(self, tiles: Iterable[Tile], splits: bool, way_of: Callable[[Tile, int], Way]) -> Way:
        """Return the fastest way with one of *tiles*; where k *splits*, its parts may fill 1, 2 or 4 waves of tiles."""
        best: Way | None = None
        most = min(_MOST_PARTS, -(-self.k // _LEAST_K))
        for tile in tiles:
            count = self.batch * -(-self.m // tile.rows) * -(-self.n // tile.columns)
            # However k is split, arithmetic takes at least its even share of all SMs.
            spread_s = count * tile.rows * tile.columns * 2.0 * self.k / (tile.sm_flops_per_s * self.sm_count)
            if best is not None and spread_s > best[0]:
                continue
            filling = {max(1, min(most, waves * self.sm_count // count)) for waves in _WAVES if splits}
            for parts in {1, *filling}:
                way = way_of(tile, parts)
                if best is None or way[0] < best[0]:
                    best = way
        assert best is not None
        return best


# (columns, rows) of the row-major result, the larger first: columns are what BLAS calls m.
_SIDES = (
    *((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (128, 32), (32, 128)),
    *((64, 32), (32, 64), (32, 32), (128, 16), (16, 128), (128, 8), (8, 128)),
)


@constants("gemm", eq=False)
class GemmConstants:
    """Constants of matrix products, the same for all GPUs.

    Those of tensor (matrix) cores apply to Volta, Turing and AMD; NVIDIA's since Ampere have their own model.

    A tile of r x c keeps its lanes busy for 1 / (1 + cost (1/r + 1/c)) of the time: operands are fetched once per row
    and column, and multiplied r c times.  Instances compare by identity, so that tiles can be cached by them.
    """

    fetch: float
    fetch_volta: float
    transpose: float
    straight_volta: float
    fetch_other: float
    rate_other: float
    rate_matrix_other: float
    alone: float
    tile_clocks: float
    overlap: float
    l2_clock_bytes: float
    thin_share: float
    l2_share: float
    pages_early: float
    pages_late: float
    idle_early: float
    idle_late: float
    split_share: float
    walk_again: float
    walk_held_bytes: float
    walk_reach_bytes: float
    walk_near: float
    walks_early: float
    walks_late: float
    start_s: float
    reduce_early_s: float
    partial_speed: float


@lru_cache(maxsize=4096)
def tiles_for(gpu: Gpu, precision: Precision, layout: str, batched: bool) -> tuple[Tile, ...]:
    """Return the tiles that a library has for products in *precision* with *layout*, the largest first."""
    tensor, c = computes_on_tensor_cores(gpu, precision), gpu.constants(GemmConstants)
    clock_Hz = sustained_clock(gpu, precision)
    sm_rate = arithmetic_rate(gpu, precision) / gpu.sm_count * clock_Hz / gpu.boost_clock_Hz
    tiles = []
    for columns, rows in _SIDES:
        if not tensor and not _in_library(gpu, columns, rows, layout, batched):
            continue
        share = _busy_share(gpu, tensor, columns, rows, layout)
        alone = c.alone / (columns * rows)
        tiles.append(Tile(columns, rows, sm_rate * share, alone, c.tile_clocks / clock_Hz * min(1.0, 1.0 / alone)))
    return tuple(tiles)


def _in_library(gpu: Gpu, columns: int, rows: int, layout: str, batched: bool) -> bool:
    """Return whether the library has a kernel with this tile for arithmetic without tensor cores."""
    kernels = gpu.traits.kernels
    if kernels == "amd":
        return max(columns, rows) < 256
    early, volta = kernels == "maxwell", kernels == "volta"
    if early and gpu.traits.small_sms and layout == "NT" and not batched:
        # P100: measured times step with the size of the result as tiles of 128 x 64 would, not larger ones.
        return (columns, rows) in ((128, 64), (64, 64))
    if batched and gpu.traits.wide_batches:
        return (columns, rows) == (128, 128) or (early and (columns, rows) == (128, 64))
    if max(columns, rows) == 256:
        return not early and not volta
    if early and rows < 64:
        return False
    if (columns, rows) == (128, 64):
        return early or volta
    return (columns, rows) != (64, 128)


def _busy_share(gpu: Gpu, tensor: bool, columns: int, rows: int, layout: str) -> float:
    c = gpu.constants(GemmConstants)
    fetches, kernels = 1.0 / columns + 1.0 / rows, gpu.traits.kernels
    if tensor:
        rate = c.rate_matrix_other if kernels == "amd" else 1.0
        return rate / (1.0 + c.fetch * fetches)
    if kernels == "amd":
        return c.rate_other / (1.0 + c.fetch_other * fetches)
    if kernels == "volta":
        fetch, turn = c.fetch_volta, 0.0 if layout == "NT" else c.straight_volta
    else:
        fetch = c.fetch
        turn = c.transpose if layout == "NT" else 0.0
    return 1.0 / (1.0 + (fetch * gpu.lanes_per_sm / 128.0 + turn) * fetches)
