"""Matrix products: the fastest of the ways in which a library can cut them.

A way is a tile and a number of parts into which k is split.  Its time is a norm of four times that partly overlap:
arithmetic, in whole waves of tiles over the SMs; device memory, from which each wave reads its operands anew unless L2
still holds them; L2, from which every tile fetches its rows and columns; and address translation, where rows are far
apart and operands are contiguous along k.  Products on tensor cores since Ampere have their own model
(:mod:`simulator.devices.gpu.tensor_product`).
"""

from __future__ import annotations

import math
from functools import lru_cache

from simulator.devices.cost import KernelCost
from simulator.devices.gpu.gpu import Gpu
from simulator.devices.gpu.memory import achieved_bandwidth, l2_bandwidth, resident_share
from simulator.devices.gpu.product import GemmConstants, ProductTime, Tile, parts_of_k, sides_of_wave, tiles_for
from simulator.devices.gpu.rates import arithmetic_rate, computes_on_tensor_cores, held, sustained_clock
from simulator.devices.gpu.tensor_product import is_pipelined, tensor_product_time
from simulator.records import dataclass, replace
from simulator.workload.kernels import Gemm
from simulator.workload.precision import ELEMENT_BYTES, Precision

_THIN = 16  # largest number of rows or columns that dot-product kernels compute
_STEP_K = 8
_VECTOR = 2  # elements that one load instruction fetches, at least, where rows are aligned to them
_ALIGNMENT = 16  # bytes, which old libraries require of rows for tensor cores
_SECTOR_BYTES = 32
_PAGE_BYTES = 2 << 20  # covered by one translation, since Pascal
_Way = tuple[float, Tile, int, float, float, float, float]  # the fields of ProductTime


@dataclass(frozen=True, slots=True)
class _Product:
    """A product on a device: the figures that do not depend on how it is cut."""

    m: int
    n: int
    k: int
    batch: int
    left_bytes: float  # of one A
    right_bytes: float
    written_bytes: float
    element_bytes: int
    left_walks: float  # translations per row of A and step along k; 0 where they are cached
    right_walks: float
    missed: float  # share of operands read anew by later waves
    sm_count: int
    memory_s_per_byte: float
    l2_Bps_per_sm: float
    known_pages: float  # pages whose translations are cached
    page_sharpness: float
    walks_per_s: float
    idle_share: float  # share of the last wave's idle time that is lost
    split_share: float  # rate with k split, relative to that without
    reduce_s: float  # of the reduction kernel, where k is split
    partial_s_per_byte: float  # of the partial sums
    start_s: float


def gemm_cost(gpu: Gpu, kernel: Gemm) -> KernelCost:
    """Return the cost of *kernel* on *gpu*."""
    if kernel.plain and gpu.traits.int8_in_tiles:
        gpu = _on_lanes(gpu)
    element = ELEMENT_BYTES[kernel.precision]
    if is_pipelined(gpu, kernel.precision):
        found = tensor_product_time(gpu, kernel)
    else:
        found = matrix_product_time(
            gpu,
            kernel.m,
            kernel.n,
            kernel.k,
            "fp32" if _lacks_tensor_kernel(gpu, kernel) else kernel.precision,
            batch=kernel.batch,
            layout=kernel.layout,
            element_bytes=element,
            written_bytes=float(kernel.m * kernel.n * (kernel.out_bytes or element)),
        )
    moved = kernel.bytes + kernel.epilogue_elements * element
    parts = f", k in {found.parts}" if found.parts > 1 else ""
    unaligned = f", rows at {found.piece_bytes} bytes" if found.piece_bytes < 16 else ""
    detail = f"tiles {found.tile.rows}x{found.tile.columns}{parts}{unaligned}"
    return KernelCost(found.time_s, found.bound, kernel.flop, moved, detail)


def _lacks_tensor_kernel(gpu: Gpu, kernel: Gemm) -> bool:
    """Return whether old libraries compute *kernel* on lanes: a row of one of its matrices is no whole 16 bytes.

    Dot-product kernels compute thin products in any case.
    """
    if gpu.any_shape_on_tensor_cores or kernel.precision != "fp16" or min(kernel.m, kernel.n) <= _THIN:
        return False
    if not computes_on_tensor_cores(gpu, kernel.precision):
        return False
    left, right = kernel.layout
    rows = (kernel.n, kernel.k if left == "N" else kernel.m, kernel.n if right == "N" else kernel.k)
    return any(row * ELEMENT_BYTES[kernel.precision] % _ALIGNMENT for row in rows)


def matrix_product_time(
    gpu: Gpu,
    m: int,
    n: int,
    k: int,
    precision: Precision,
    *,
    batch: int = 1,
    layout: str = "NN",
    written_bytes: float | None = None,
    element_bytes: int | None = None,
) -> ProductTime:
    """Return the time, in seconds, of *batch* products C[m, n] = A[m, k] B[k, n], in row-major order.

    *written_bytes* is the size of one C, where its elements are wider than those of A and B; *element_bytes* that of an
    element of these, where *precision* does not give it.  Products for which
    :func:`simulator.devices.gpu.tensor_product.is_pipelined` holds use another model.
    """
    constants = gpu.constants(GemmConstants)
    element = element_bytes or ELEMENT_BYTES[precision]
    left, right = float(m * k * element), float(n * k * element)
    written = float(m * n * element) if written_bytes is None else written_bytes
    tensor = computes_on_tensor_cores(gpu, precision)
    product = _product(gpu, (m, n, k, batch), (left, right, written), precision, element, layout, constants)
    splits = tensor or batch == 1 or gpu.traits.kernels == "amd"
    best: _Way | None = None
    aligned = n % _VECTOR == 0 and (layout != "NT" or k % _VECTOR == 0)
    for tile in tiles_for(gpu, precision, layout, batch > 1, aligned):
        tiles = batch * -(-m // tile.rows) * -(-n // tile.columns)
        # However k is split, arithmetic takes at least its even share of all SMs.
        if (
            best is not None
            and tiles * tile.rows * tile.columns * 2.0 * k > best[0] * tile.sm_flops_per_s * gpu.sm_count
        ):
            continue
        for parts in parts_of_k(k, gpu.sm_count, tiles) if splits else (1,):
            way = _way(product, tile, parts, constants)
            if best is None or way[0] < best[0]:
                best = way
    assert best is not None
    if batch == 1 and min(m, n) <= _THIN:
        rate = held(gpu, arithmetic_rate(gpu, precision), precision)
        compute_s = 2.0 * m * n * k / (constants.thin_share * rate)
        memory_s = (left + right + written) * product.memory_s_per_byte
        time_s = product.start_s + math.hypot(compute_s, memory_s)
        if time_s < best[0]:
            return ProductTime(time_s, Tile(n, m, rate / gpu.sm_count, 1.0, 0.0), 1, compute_s, memory_s, 0.0, 0.0)
    return ProductTime(*best)


@lru_cache(maxsize=256)
def _on_lanes(gpu: Gpu) -> Gpu:
    """Return *gpu* without matrix units for int8."""
    return replace(gpu, peak_flops_per_s={name: peak for name, peak in gpu.peak_flops_per_s.items() if name != "int8"})


def _product(
    gpu: Gpu,
    sides: tuple[int, int, int, int],
    moved: tuple[float, float, float],
    precision: Precision,
    element: int,
    layout: str,
    c: GemmConstants,
) -> _Product:
    m, n, k, batch = sides
    left, right, written = moved
    tensor = computes_on_tensor_cores(gpu, precision)
    kernels, few = gpu.traits.kernels, gpu.traits.translations == "few"
    far, known_pages = 0.0, math.inf
    # Tensor-core tiles are wide and prefetched: translations are few and hidden.
    if gpu.traits.translations != "unseen" and not tensor:
        # Each row of tiles meets the rows of B again; rows of A are met once, after their translations were evicted.
        operands = max((m + c.walk_again * n) * k * element * batch, 1.0)
        far = c.walk_near + (1.0 - c.walk_near) / (1.0 + (c.walk_reach_bytes / operands) ** 2)
        known_pages = (c.pages_early if few else c.pages_late) * (1.0 + c.walk_held_bytes / operands)
    clock_Hz = sustained_clock(gpu, precision)
    # Successive products on the same operands find them in L2, as far as it holds them all.
    hits = resident_share(gpu, batch * (left + right + written))
    memory_Bps = achieved_bandwidth(gpu, (left + right) / (left + right + written)) * c.bandwidth_share
    l2_bytes = max(gpu.l2_bytes * c.l2_share, 1.0)
    return _Product(
        m=m,
        n=n,
        k=k,
        batch=batch,
        left_bytes=left,
        right_bytes=right,
        written_bytes=written,
        element_bytes=element,
        left_walks=far if layout[0] == "N" else 0.0,
        right_walks=far if layout[1] == "T" else 0.0,
        missed=1.0 / (1.0 + (l2_bytes / max(left + right, 1.0)) ** 2),
        sm_count=gpu.sm_count,
        memory_s_per_byte=hits / l2_bandwidth(gpu) + (1.0 - hits) / memory_Bps,
        # Tensor-core tiles are fetched once for several SMs, or found in L1: memory bounds them, not L2.
        l2_Bps_per_sm=math.inf if tensor else c.l2_clock_bytes * clock_Hz,
        known_pages=known_pages,
        page_sharpness=c.page_sharpness_early if few else c.page_sharpness_late,
        walks_per_s=(c.walks_early if few else c.walks_late) * gpu.boost_clock_Hz,
        idle_share=1.0 if tensor or kernels == "volta" else c.idle_early if kernels == "maxwell" else c.idle_late,
        split_share=c.split_share if kernels == "ampere" else 1.0,
        reduce_s=c.reduce_early_s if kernels in ("maxwell", "amd") else c.reduce_s,
        partial_s_per_byte=1.0 / (c.partial_speed * memory_Bps),
        start_s=c.start_s,
    )


def _missed(rows: int, pitch_bytes: int, known_pages: float, sharpness: float) -> float:
    """Return the share of accesses whose translation is not cached, for *rows* rows every *pitch_bytes*.

    Rows within one page share one translation, which stays cached, so the number of further pages counts.
    Tiles follow one another, so their offsets within a page follow the greatest common divisor.
    """
    span = rows * pitch_bytes
    besides = min(rows - 1.0, (span - math.gcd(span, _PAGE_BYTES)) / _PAGE_BYTES)
    return 1.0 / (1.0 + (known_pages / besides) ** sharpness) if besides > 0.0 else 0.0


def _way(p: _Product, tile: Tile, parts: int, c: GemmConstants) -> _Way:
    rows = -(-p.m // tile.rows)
    columns = -(-p.n // tile.columns)
    k = -(-p.k // (parts * _STEP_K)) * _STEP_K
    tiles = p.batch * rows * columns * parts
    waves = tiles / p.sm_count
    deep = waves + p.idle_share * (math.ceil(waves) - waves) if waves > 1.0 else 1.0
    flop_s = 2.0 * tile.rows * tile.columns * k / tile.sm_flops_per_s
    compute_s = flop_s * max(deep, tile.alone) + deep * tile.edge_s
    if parts > 1:
        compute_s /= p.split_share

    tall, wide = sides_of_wave(rows, columns, tile, p.sm_count)
    read = p.left_bytes * (1.0 + (columns / wide - 1.0) * p.missed)
    read += p.right_bytes * (1.0 + (rows / tall - 1.0) * p.missed)
    memory_s = p.batch * (read + p.written_bytes) * p.memory_s_per_byte

    fetched = tiles * k * p.element_bytes
    l2_s = fetched * (tile.rows + tile.columns) / (p.l2_Bps_per_sm * min(tiles, p.sm_count))
    walk_s = 0.0
    if p.left_walks or p.right_walks:
        tile_rows, tile_columns = min(tile.rows, p.m), min(tile.columns, p.n)
        missed = _missed(min(tile_rows, tile_columns), p.k * p.element_bytes, p.known_pages, p.page_sharpness)
        walked = (tile_rows * p.left_walks + tile_columns * p.right_walks) * missed
        walk_s = fetched / _SECTOR_BYTES * walked / p.walks_per_s

    e = c.overlap
    time_s = p.start_s + (compute_s**e + memory_s**e + l2_s**e + walk_s**e) ** (1.0 / e)
    if parts > 1:
        time_s += p.reduce_s + p.batch * p.m * p.n * 4.0 * (parts + 1) * p.partial_s_per_byte
    return time_s, tile, parts, compute_s, memory_s, l2_s, walk_s
