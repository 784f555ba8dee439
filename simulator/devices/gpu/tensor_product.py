"""Matrix products on tensor cores with asynchronous operand loads: NVIDIA's since Ampere.

A block computes a tile of the result.  It goes along k in stages; while it multiplies one, the next are being loaded.
The time is a norm of four times that partly overlap: arithmetic, in whole waves of tiles over the SMs; device memory,
from which each wave reads its operands anew unless L2 still holds them; L2, from which every tile fetches its rows and
columns; and memory latency along k, which bounds small products, as they have too few bytes in flight.  The start and
end of a tile overlap with nothing (pipeline fill), and the write of the result is only partly hidden.  Where tiles are
few, k is split into parts that are added up afterwards.  The library is assumed to choose the fastest way to cut.

Operands come in pieces of 16 bytes where the rows of all three matrices are aligned to 16 bytes.  A single matrix with
unaligned rows forces a kernel that loads smaller pieces, no more of them per clock, so that L2 delivers less to an SM.
TMA requires the alignment, so newer chips too run such products with Ampere-style kernels (cuBLAS calls them
``cutlass_75_tensorop_bf16_s1688gemm_*_align1``; docs/decisions/device-costs.md has what is known of them).

There is one set of constants per operand path: threads copy operands to shared memory past their registers
(``cp.async``), or a dedicated warp fetches them in boxes (TMA) for ``wgmma``.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import ClassVar

from simulator.constants import constants
from simulator.devices.gpu.gpu import Gpu
from simulator.devices.gpu.memory import achieved_bandwidth, l2_bandwidth, resident_share
from simulator.devices.gpu.product import ProductTime, Tile, parts_of_k, sides_of_wave
from simulator.devices.gpu.rates import arithmetic_rate, computes_on_tensor_cores, energy_time, working_clock
from simulator.records import dataclass
from simulator.workload.kernels import Gemm
from simulator.workload.precision import ELEMENT_BYTES, Precision

# (columns, rows), the larger first.
_SIDES = (
    *((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (128, 32)),
    *((32, 128), (64, 32), (32, 64), (128, 16), (16, 128), (64, 16), (16, 64)),
)
_STEP_K = 32
_SUM_BYTES = 4  # partial sums are in fp32
_WHOLE_PIECE = 16  # bytes: the most that a thread copies at once, and the alignment that TMA requires


@dataclass(frozen=True, slots=True, eq=False)
class TensorProductCosts:
    """Constants of one operand path.  Instances compare by identity, so that tiles can be cached by them."""

    start_clocks: float
    edge_clocks: float
    edge_32_bit_clocks: float
    rate: float
    rate_32_bit: float
    fetch: float
    alone: float
    latency_s: float
    cached: float
    overlap: float
    bandwidth_share: float
    l2_rate_share: float
    l2_share: float
    l2_clock_bytes: float
    exposed: float
    reduce_clocks: float
    partial: float


@constants("tensor_product")
@dataclass(frozen=True, slots=True, eq=False)
class TensorProducts:
    """Constants of products by operand path, the same for all NVIDIA GPUs since Ampere."""

    PARTS: ClassVar = {"copies": TensorProductCosts, "warps": TensorProductCosts}
    copies: TensorProductCosts
    warps: TensorProductCosts
    power_sharpness: float
    synchronous_flop_bytes: float


_Way = tuple[float, Tile, int, float, float, float, float]


def is_pipelined(gpu: Gpu, precision: Precision) -> bool:
    """Return whether products in *precision* run on tensor cores with asynchronous operand loads."""
    return gpu.traits.operands in ("copies", "warps") and computes_on_tensor_cores(gpu, precision)


@dataclass(frozen=True, slots=True)
class _Product:
    """A product on a device: the figures that do not depend on how it is cut.  A and B are those of one product."""

    m: int
    n: int
    k: int
    batch: int
    element_bytes: int
    left_bytes: float
    right_bytes: float
    written_bytes: float
    missed: float  # share of operands read anew by later waves
    s_per_byte: float  # of memory and L2, weighted by hits
    latency_s: float  # per element along k
    l2_Bps_per_sm: float
    partial_s_per_byte: float
    start_s: float
    reduce_s: float
    energy_s: float  # the least time in which the board can supply the energy
    sharpness: float  # of the limit by power


def tensor_product_time(gpu: Gpu, kernel: Gemm) -> ProductTime:
    """Return the time of *kernel* on *gpu*; :func:`is_pipelined` must hold for them."""
    piece = _piece_bytes(kernel)
    by_warps = gpu.traits.operands == "warps"
    synchronous = by_warps and piece < _WHOLE_PIECE
    both = gpu.constants(TensorProducts)
    costs = both.warps if by_warps and not synchronous else both.copies
    product = _product(gpu, kernel, costs, piece)
    best: _Way | None = None
    for tile in _tiles(gpu, kernel.precision, costs, synchronous=synchronous):
        tiles = kernel.batch * -(-kernel.m // tile.rows) * -(-kernel.n // tile.columns)
        # However k is split, arithmetic takes at least its even share of all SMs.
        spread_s = tiles * tile.rows * tile.columns * 2.0 * kernel.k / (tile.sm_flops_per_s * gpu.sm_count)
        if best is not None and spread_s > best[0]:
            continue
        for parts in parts_of_k(kernel.k, gpu.sm_count, tiles):
            way = _way(product, tile, parts, gpu.sm_count, costs)
            if best is None or way[0] < best[0]:
                best = way
    assert best is not None
    time_s, tile, parts, compute_s, memory_s, l2_s, latency_s = best
    return ProductTime(time_s, tile, parts, compute_s, memory_s, l2_s, 0.0, latency_s, piece)


def _highest_clock(gpu: Gpu) -> float:
    return max(gpu.max_clock_Hz, gpu.boost_clock_Hz)


def _piece_bytes(kernel: Gemm) -> int:
    """Return the size of operand loads in bytes: the largest power of 2 up to 16 that divides all row strides."""
    element = ELEMENT_BYTES[kernel.precision]
    m, n, k = kernel.m, kernel.n, kernel.k
    left, right = (m, k) if kernel.layout[0] == "N" else (k, m), (k, n) if kernel.layout[1] == "N" else (n, k)
    strides = []
    for (rows, columns), size in ((left, element), (right, element), ((m, n), kernel.out_bytes or element)):
        if min(rows, columns) > 1:
            strides.append(columns * size)
        elif kernel.batch > 1:  # vectors stored one after the other
            strides.append(rows * columns * size)
    return math.gcd(_WHOLE_PIECE, *strides)


def _product(gpu: Gpu, kernel: Gemm, c: TensorProductCosts, piece_bytes: int) -> _Product:
    element = ELEMENT_BYTES[kernel.precision]
    left, right = float(kernel.m * kernel.k * element), float(kernel.n * kernel.k * element)
    written = float(kernel.m * kernel.n * (kernel.out_bytes or element))
    memory_Bps = achieved_bandwidth(gpu, (left + right) / (left + right + written)) * c.bandwidth_share
    # Successive products on the same operands find them in L2, as far as it holds them all.
    hits = resident_share(gpu, kernel.batch * (left + right + written))
    l2_Bps = max(l2_bandwidth(gpu) * c.l2_rate_share, memory_Bps)
    clock_Hz = _highest_clock(gpu)
    return _Product(
        m=kernel.m,
        n=kernel.n,
        k=kernel.k,
        batch=kernel.batch,
        element_bytes=element,
        left_bytes=left,
        right_bytes=right,
        written_bytes=written,
        missed=1.0 / (1.0 + (max(gpu.l2_bytes * c.l2_share, 1.0) / max(left + right, 1.0)) ** 2),
        s_per_byte=hits / l2_Bps + (1.0 - hits) / memory_Bps,
        latency_s=c.latency_s * element / 2.0 * (1.0 - hits * (1.0 - c.cached)),
        l2_Bps_per_sm=c.l2_clock_bytes * piece_bytes / _WHOLE_PIECE * clock_Hz,
        partial_s_per_byte=c.partial / memory_Bps,
        start_s=c.start_clocks / clock_Hz,
        reduce_s=c.reduce_clocks / clock_Hz,
        energy_s=energy_time(gpu, kernel.precision, 2.0 * kernel.m * kernel.n * kernel.k * kernel.batch),
        sharpness=gpu.constants(TensorProducts).power_sharpness,
    )


@lru_cache(maxsize=1024)
def _tiles(gpu: Gpu, precision: Precision, c: TensorProductCosts, *, synchronous: bool) -> tuple[Tile, ...]:
    """Return the tiles of products in *precision*, largest first; *synchronous*: with Ampere's instructions."""
    if gpu.traits.operands == "warps":  # energy_time limits large products to the board's power
        clock_Hz = _highest_clock(gpu) * gpu.calibration.compute
    else:
        clock_Hz = working_clock(gpu, precision)
    sm_rate = arithmetic_rate(gpu, precision) / gpu.sm_count * clock_Hz / gpu.boost_clock_Hz * c.rate
    if synchronous:
        flop_bytes = gpu.constants(TensorProducts).synchronous_flop_bytes
        sm_rate = min(sm_rate, flop_bytes / ELEMENT_BYTES[precision] * clock_Hz)
    edge_clocks = c.edge_clocks
    if precision == "tf32" and gpu.traits.turned_32_bit:
        sm_rate *= c.rate_32_bit
        edge_clocks = c.edge_32_bit_clocks
    found = []
    for columns, rows in _SIDES:
        share = 1.0 / (1.0 + c.fetch * (1.0 / columns + 1.0 / rows))
        alone = c.alone / (columns * rows)
        found.append(Tile(columns, rows, sm_rate * share, alone, edge_clocks / clock_Hz * min(1.0, 1.0 / alone)))
    return tuple(found)


def _way(p: _Product, tile: Tile, parts: int, sm_count: int, c: TensorProductCosts) -> _Way:
    rows, columns = -(-p.m // tile.rows), -(-p.n // tile.columns)
    k = -(-p.k // (parts * _STEP_K)) * _STEP_K
    tiles = p.batch * rows * columns * parts
    waves = float(max(1, -(-tiles // sm_count)))
    turns = max(1.0, waves * min(1.0, 1.0 / tile.alone))  # waves, with small tiles that share an SM counted as one
    compute_s = 2.0 * tile.rows * tile.columns * k / tile.sm_flops_per_s * max(waves, tile.alone)

    tall, wide = sides_of_wave(rows, columns, tile, sm_count)
    read = p.left_bytes * (1.0 + (columns / wide - 1.0) * p.missed)
    read += p.right_bytes * (1.0 + (rows / tall - 1.0) * p.missed)
    memory_s = p.batch * (read + p.written_bytes) * p.s_per_byte

    fetched = tiles * k * p.element_bytes
    l2_s = fetched * (tile.rows + tile.columns) / (p.l2_Bps_per_sm * min(tiles, sm_count))
    latency_s = k * p.latency_s * turns
    e = c.overlap
    time_s = p.start_s + (compute_s**e + memory_s**e + l2_s**e + latency_s**e) ** (1.0 / e)
    time_s += tile.edge_s * waves + c.exposed * p.batch * p.written_bytes * p.s_per_byte
    if parts > 1:
        sums = p.batch * p.m * p.n * _SUM_BYTES * (parts + 1)  # partial sums written and read, result written
        time_s += p.reduce_s + sums * p.partial_s_per_byte
    if p.energy_s:
        time_s = (time_s**p.sharpness + p.energy_s**p.sharpness) ** (1.0 / p.sharpness)
    return time_s, tile, parts, compute_s, memory_s, l2_s, latency_s
