"""Products of matrices: of the ways in which a library can cut them, the fastest.

A way is a tile and a number of parts that k is split into.  Its time is the norm of four, which overlap
in part: arithmetic, in whole waves of tiles over the SMs; device memory, where each wave reads its
operands anew unless L2 still has them; L2, from which every tile fetches its rows and columns; and the
translation of addresses, where rows lie far apart and operands lie along k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from simulator.devices.clock import computes_on_tensor_cores, sustained_clock
from simulator.devices.cost import Bound, KernelCost
from simulator.devices.device import Gpu
from simulator.devices.gemm_tiles import EARLY, GEMM, GemmConstants, Tile, tiles_for
from simulator.devices.kernels import Gemm
from simulator.devices.memory import achieved_bandwidth
from simulator.workload.precision import ELEMENT_BYTES, Precision

__all__ = ["ProductTime", "gemm_cost", "matrix_product_time"]

_WAVES = (1, 2, 4)  # that k may be split to fill
_MOST_PARTS = 64
_LEAST_K = 64  # of a part
_STEP_K = 8
_SECTOR_BYTES = 32
_WALK_SHARPNESS = 3.0
_REDUCE_SPEED = 2.5  # partial sums of a split k are still in L2: so much faster than device memory


@dataclass(frozen=True, slots=True)
class ProductTime:
    """What a product takes, and how: its tile, the parts of k, and what each resource alone would take."""

    time_s: float
    tile: Tile
    parts: int
    compute_s: float
    memory_s: float
    l2_s: float
    walk_s: float

    @property
    def bound(self) -> Bound:
        """What takes longest; latency where neither arithmetic nor memory explains half of the time."""
        moving_s = max(self.memory_s, self.l2_s, self.walk_s)
        if max(self.compute_s, moving_s) < 0.5 * self.time_s:
            return "latency"
        return "compute" if self.compute_s >= moving_s else "memory"


@dataclass(frozen=True, slots=True)
class _Product:
    """A product on a device: all that does not depend on how it is cut."""

    m: int
    n: int
    k: int
    batch: int
    left_bytes: float  # of one A
    right_bytes: float
    written_bytes: float
    element_bytes: int
    left_walks: float  # translations for each row of A, each step along k: 0 where L1 has them
    right_walks: float
    missed: float  # share of operands read anew by later waves
    sm_count: int
    tiles_at_once: float
    memory_Bps: float
    l2_Bps_per_sm: float
    walks_per_s: float


def gemm_cost(gpu: Gpu, kernel: Gemm, constants: GemmConstants = GEMM) -> KernelCost:
    """Return the cost of *kernel* on *gpu*."""
    element = ELEMENT_BYTES[kernel.precision]
    found = matrix_product_time(
        gpu,
        kernel.m,
        kernel.n,
        kernel.k,
        kernel.precision,
        batch=kernel.batch,
        layout=kernel.layout,
        written_bytes=float(kernel.m * kernel.n * (kernel.out_bytes or element)),
        constants=constants,
    )
    moved = kernel.bytes + kernel.epilogue_elements * element
    parts = f", k in {found.parts}" if found.parts > 1 else ""
    detail = f"tiles {found.tile.rows}x{found.tile.columns}{parts}"
    return KernelCost(found.time_s, found.bound, kernel.flop, moved, detail)


def matrix_product_time(
    gpu: Gpu,
    m: int,
    n: int,
    k: int,
    precision: Precision,
    *,
    batch: int = 1,
    layout: str = "NN",
    left_bytes: float | None = None,
    right_bytes: float | None = None,
    written_bytes: float | None = None,
    constants: GemmConstants = GEMM,
) -> ProductTime:
    """Return the time of *batch* products C[m, n] = A[m, k] B[k, n], in row-major order.

    *left_bytes*, *right_bytes* and *written_bytes* are those of one A, B and C in device memory, where
    they differ from their sizes: an implicit product reads an image, not the matrix made of its windows.
    """
    element = ELEMENT_BYTES[precision]
    tensor = computes_on_tensor_cores(gpu, precision)
    left = float(m * k * element) if left_bytes is None else left_bytes
    right = float(n * k * element) if right_bytes is None else right_bytes
    l2_bytes = max(gpu.l2_bytes * constants.l2_share, 1.0)
    far = 0.0
    if gpu.vendor == "nvidia":
        far = 1.0 / (1.0 + (constants.walk_stride_bytes / (k * element)) ** _WALK_SHARPNESS)
    walks_per_clock = constants.walks_early if gpu.generation in EARLY else constants.walks_late
    product = _Product(
        m,
        n,
        k,
        batch,
        left,
        right,
        float(m * n * element) if written_bytes is None else written_bytes,
        element,
        far if layout[0] == "N" else 0.0,
        far if layout[1] == "T" else 0.0,
        1.0 / (1.0 + (l2_bytes / max(left + right, 1.0)) ** 2),
        gpu.sm_count,
        gpu.sm_count * constants.wave,
        achieved_bandwidth(gpu) * constants.bandwidth_share,
        (constants.l2_clock_bytes_tensor if tensor else constants.l2_clock_bytes) * sustained_clock(gpu, precision),
        walks_per_clock * gpu.boost_clock_Hz,
    )
    splits = tensor or batch == 1 or gpu.vendor != "nvidia"
    best: ProductTime | None = None
    for tile in tiles_for(gpu, precision, layout, batch > 1, constants):
        for parts in _parts(product, tile) if splits else (1,):
            found = _time(product, tile, parts, constants)
            if best is None or found.time_s < best.time_s:
                best = found
    assert best is not None
    return best


def _parts(product: _Product, tile: Tile) -> set[int]:
    """Return into how many parts k may be split with *tile*: so that all SMs have one, two, four tiles."""
    tiles = product.batch * -(-product.m // tile.rows) * -(-product.n // tile.columns)
    most = min(_MOST_PARTS, -(-product.k // _LEAST_K))
    return {1, *(max(1, min(most, waves * product.sm_count // tiles)) for waves in _WAVES)}


def _time(p: _Product, tile: Tile, parts: int, c: GemmConstants) -> ProductTime:
    rows = -(-p.m // tile.rows)
    columns = -(-p.n // tile.columns)
    k = -(-p.k // (parts * _STEP_K)) * _STEP_K
    tiles = p.batch * rows * columns * parts
    deep = -(-tiles // p.sm_count)
    flop_s = 2.0 * tile.rows * tile.columns * k / tile.sm_flops_per_s
    compute_s = flop_s * max(deep, tile.alone) + deep * tile.edge_s

    # A wave covers about as many rows as columns of C, each of which is read once for the wave.
    wide = min(max(math.sqrt(p.tiles_at_once * tile.columns / tile.rows), 1.0), rows)
    across = min(max(p.tiles_at_once / wide, 1.0), columns)
    wide = min(max(p.tiles_at_once / across, 1.0), rows)
    read = p.left_bytes * (1.0 + (columns / across - 1.0) * p.missed)
    read += p.right_bytes * (1.0 + (rows / wide - 1.0) * p.missed)
    memory_s = p.batch * (read + p.written_bytes) / p.memory_Bps

    fetched = tiles * k * p.element_bytes
    l2_s = fetched * (tile.rows + tile.columns) / (p.l2_Bps_per_sm * min(tiles, p.sm_count))
    turned = min(tile.rows, p.m) * p.left_walks + min(tile.columns, p.n) * p.right_walks
    walk_s = fetched / _SECTOR_BYTES * turned / p.walks_per_s

    e = c.overlap
    time_s = c.start_s + (compute_s**e + memory_s**e + l2_s**e + walk_s**e) ** (1.0 / e)
    if parts > 1:
        partial = p.batch * p.m * p.n * 4.0 * (parts + 1)
        time_s += c.reduce_s + partial / (_REDUCE_SPEED * p.memory_Bps)
    return ProductTime(time_s, tile, parts, compute_s, memory_s, l2_s, walk_s)
