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
from typing import ClassVar, get_args

from simulator.constants import constants
from simulator.devices.gpu import Gpu
from simulator.devices.gpu.memory import l2_bandwidth
from simulator.devices.gpu.product import GemmConstants, PlacedProduct, ProductTime, Tile, Way
from simulator.devices.gpu.rates import (
    arithmetic_rate,
    computes_on_tensor_cores,
    energy_time,
    highest_clock,
    tensor_pace,
    working_clock,
)
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
    overlap: float
    bandwidth_share: float
    l2_rate_share: float
    l2_clock_bytes: float
    reduce_clocks: float


@constants("tensor_product", eq=False)
class TensorProducts:
    """Constants of products by operand path, the same for all NVIDIA GPUs since Ampere."""

    PARTS: ClassVar = {"copies": TensorProductCosts, "warps": TensorProductCosts}
    copies: TensorProductCosts
    warps: TensorProductCosts
    latency_s: float
    cached: float
    exposed: float
    l2_share: float
    power_sharpness: float
    synchronous_flop_bytes: float


def is_pipelined(gpu: Gpu, precision: Precision) -> bool:
    """Return whether products in *precision* run on tensor cores with asynchronous operand loads."""
    return gpu.traits.operands in ("copies", "warps") and computes_on_tensor_cores(gpu, precision)


def tensor_product_time(gpu: Gpu, kernel: Gemm) -> ProductTime:
    """Return the time of *kernel* on *gpu*; :func:`is_pipelined` must hold for them."""
    piece = _piece_bytes(kernel)
    by_warps = gpu.traits.operands == "warps"
    synchronous = by_warps and piece < _WHOLE_PIECE
    both = gpu.constants(TensorProducts)
    c = both.warps if by_warps and not synchronous else both.copies
    m, n, k, batch, element = kernel.m, kernel.n, kernel.k, kernel.batch, ELEMENT_BYTES[kernel.precision]
    written = float(kernel.result_bytes)
    p = PlacedProduct(gpu, (m, n, k, batch), element, written, (c.bandwidth_share, both.l2_share))
    l2_Bps = max(l2_bandwidth(gpu) * c.l2_rate_share, p.memory_Bps)
    s_per_byte = p.hits / l2_Bps + (1.0 - p.hits) / p.memory_Bps
    clock_Hz = _top_clock(gpu)
    latency_s_per_k = both.latency_s * element / 2.0 * (1.0 - p.hits * (1.0 - both.cached))
    l2_Bps_per_sm = c.l2_clock_bytes * piece / _WHOLE_PIECE * clock_Hz
    start_s, reduce_s = c.start_clocks / clock_Hz, c.reduce_clocks / clock_Hz
    partial_s_per_byte = 1.0 / (gpu.constants(GemmConstants).partial_speed * p.memory_Bps)
    energy_s = energy_time(gpu, kernel.precision, 2.0 * m * n * k * batch)  # the board supplies it no sooner
    e, sharpness = c.overlap, both.power_sharpness

    def way_of(tile: Tile, parts: int) -> Way:
        k_part, tiles, moved, fetched = p.cut(tile, parts, _STEP_K)
        waves = float(max(1, -(-tiles // p.sm_count)))
        turns = max(1.0, waves * min(1.0, 1.0 / tile.alone))  # waves, with small tiles that share an SM counted as one
        compute_s = 2.0 * tile.rows * tile.columns * k_part / tile.sm_flops_per_s * max(waves, tile.alone)
        memory_s = moved * s_per_byte
        l2_s = fetched * (tile.rows + tile.columns) / (l2_Bps_per_sm * min(tiles, p.sm_count))
        latency_s = k_part * latency_s_per_k * turns
        time_s = start_s + (compute_s**e + memory_s**e + l2_s**e + latency_s**e) ** (1.0 / e)
        time_s += tile.edge_s * waves + both.exposed * batch * written * s_per_byte
        if parts > 1:
            sums = batch * m * n * _SUM_BYTES * (parts + 1)  # partial sums written and read, result written
            time_s += reduce_s + sums * partial_s_per_byte
        if energy_s:
            time_s = (time_s**sharpness + energy_s**sharpness) ** (1.0 / sharpness)
        return time_s, tile, parts, compute_s, memory_s, l2_s, latency_s

    found = p.fastest(_tiles(gpu, kernel.precision, c, synchronous=synchronous), True, way_of)
    return ProductTime(*found[:6], 0.0, found[6], piece, energy_s)


@lru_cache(maxsize=256)
def _top_clock(gpu: Gpu) -> float:
    """Return the clock, in Hz, of what is not multiplication: that of the format that leaves most power."""
    formats = (precision for precision in get_args(Precision) if computes_on_tensor_cores(gpu, precision))
    return max(gpu.max_clock_Hz, *(highest_clock(gpu, precision) for precision in formats))


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


@lru_cache(maxsize=1024)
def _tiles(gpu: Gpu, precision: Precision, c: TensorProductCosts, *, synchronous: bool) -> tuple[Tile, ...]:
    """Return the tiles of products in *precision*, largest first; *synchronous*: with Ampere's instructions."""
    if gpu.traits.operands == "warps":  # energy_time limits large products to the board's power
        clock_Hz = _top_clock(gpu) * gpu.calibration.compute
    else:
        clock_Hz = working_clock(gpu, precision)
    pace = tensor_pace(gpu, precision)
    sm_rate = arithmetic_rate(gpu, precision) / gpu.sm_count * clock_Hz / gpu.boost_clock_Hz
    sm_rate *= c.rate / (c.rate + (1.0 - c.rate) * pace)
    if synchronous:
        flop_bytes = gpu.constants(TensorProducts).synchronous_flop_bytes
        sm_rate = min(sm_rate, flop_bytes / ELEMENT_BYTES[precision] * clock_Hz)
    edge_clocks = c.edge_clocks
    if precision == "tf32" and gpu.traits.turned_32_bit:
        sm_rate *= c.rate_32_bit
        edge_clocks = c.edge_32_bit_clocks
    found = []
    for columns, rows in _SIDES:
        share = 1.0 / (1.0 + c.fetch * pace * (1.0 / columns + 1.0 / rows))
        alone = c.alone / (columns * rows)
        found.append(Tile(columns, rows, sm_rate * share, alone, edge_clocks / clock_Hz * min(1.0, 1.0 / alone)))
    return tuple(found)
