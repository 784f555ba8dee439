"""Matrix products: the fastest of the ways in which a library can cut them (docs/decisions/kernels.md)."""

import math
from collections.abc import Callable
from functools import lru_cache

from simulator.devices import KernelCost, bound_of
from simulator.devices.gpu import Gpu, product
from simulator.devices.gpu.memory import l2_bandwidth, memory_time, resident_share
from simulator.devices.gpu.product import PlacedProduct, ProductTime, Tile, Way, is_pipelined, tensor_product_time
from simulator.devices.gpu.rates import arithmetic_rate, computes_on_tensor_cores, energy_time, held, sustained_clock
from simulator.devices.predict import cold_device
from simulator.records import replace
from simulator.workload.kernels import Gemm
from simulator.workload.operators.grouped import GroupedGemm, Grouping
from simulator.workload.precision import ELEMENT_BYTES, Precision

_THIN = 16  # largest number of rows or columns that dot-product kernels compute
_STEP_K = 8
_ALIGNMENT = 16  # bytes, which old libraries require of rows for tensor cores
_SECTOR_BYTES = 32
_PAGE_BYTES = 2 << 20  # covered by one translation, since Pascal


def gemm_cost(gpu: Gpu, kernel: Gemm) -> KernelCost:
    """Return the cost of *kernel* on *gpu*."""
    found = product_time(gpu, kernel)
    moved = kernel.bytes + kernel.epilogue_elements * ELEMENT_BYTES[kernel.precision]
    parts = f", k in {found.parts}" if found.parts > 1 else ""
    unaligned = f", rows at {found.piece_bytes} bytes" if found.piece_bytes < 16 else ""
    detail = f"tiles {found.tile.rows}x{found.tile.columns}{parts}{unaligned}"
    return KernelCost(found.time_s, found.bound, kernel.flop, moved, detail)


def product_time(gpu: Gpu, kernel: Gemm) -> ProductTime:
    """Return the time of *kernel* on *gpu*, and the tiles that it is cut into."""
    if kernel.plain and gpu.traits.int8_in_tiles:
        gpu = _on_lanes(gpu)
    return tensor_product_time(gpu, kernel) if is_pipelined(gpu, kernel.precision) else _in_waves(gpu, kernel)


def _lacks_tensor_kernel(gpu: Gpu, kernel: Gemm) -> bool:
    """Return whether old libraries compute *kernel* on lanes: a row of one of its matrices is no whole 16 bytes."""
    if gpu.any_shape_on_tensor_cores or kernel.precision != "fp16" or min(kernel.m, kernel.n) <= _THIN:
        return False
    if not computes_on_tensor_cores(gpu, kernel.precision):
        return False
    left, right = kernel.layout
    rows = (kernel.n, kernel.k if left == "N" else kernel.m, kernel.n if right == "N" else kernel.k)
    return any(row * ELEMENT_BYTES[kernel.precision] % _ALIGNMENT for row in rows)


def _in_waves(gpu: Gpu, kernel: Gemm) -> ProductTime:
    """Return the time, in seconds, of products without asynchronous operand loads."""
    c = gpu.constants["gemm"]
    m, n, k, batch, layout = kernel.m, kernel.n, kernel.k, kernel.batch, kernel.layout
    precision: Precision = "fp32" if _lacks_tensor_kernel(gpu, kernel) else kernel.precision
    written = float(kernel.result_bytes)
    tensor, kernels = computes_on_tensor_cores(gpu, precision), gpu.traits.kernels
    p = PlacedProduct(gpu, (m, n, k, batch), ELEMENT_BYTES[kernel.precision], written, (1.0, c.l2_share))
    s_per_byte = p.hits / l2_bandwidth(gpu) + (1.0 - p.hits) / p.memory_Bps
    # Tensor-core tiles are fetched once for several SMs, or found in L1: memory bounds them, not L2.
    l2_clock_bytes = gpu.constants["memory"].l2_bytes_per_clock
    l2_Bps_per_sm = math.inf if tensor else l2_clock_bytes * sustained_clock(gpu, precision)
    idle_share = 1.0 if tensor or kernels == "volta" else c.idle_early if kernels == "maxwell" else c.idle_late
    split_share = c.split_share if kernels == "ampere" else 1.0  # rate with k split, relative to that without
    reduce_s = c.reduce_early_s if kernels in ("maxwell", "amd") else c.start_s
    partial_s_per_byte = 1.0 / (c.partial_speed * p.memory_Bps)
    # Tensor-core tiles are wide and prefetched: translations are few and hidden.
    walk_s_of = _walks(gpu, p, layout) if gpu.traits.translations != "unseen" and not tensor else None
    e = c.overlap

    def way_of(tile: Tile, parts: int) -> Way:
        k_part, tiles, moved, fetched = p.cut(tile, parts, _STEP_K)
        waves = tiles / p.sm_count
        deep = waves + idle_share * (math.ceil(waves) - waves) if waves > 1.0 else 1.0
        flop_s = 2.0 * tile.rows * tile.columns * k_part / tile.sm_flops_per_s
        compute_s = flop_s * max(deep, tile.alone) + deep * tile.edge_s
        if parts > 1:
            compute_s /= split_share
        memory_s = moved * s_per_byte
        l2_s = fetched * (tile.rows + tile.columns) / (l2_Bps_per_sm * min(tiles, p.sm_count))
        walk_s = walk_s_of(tile, fetched) if walk_s_of else 0.0
        time_s = c.start_s + (compute_s**e + memory_s**e + l2_s**e + walk_s**e) ** (1.0 / e)
        if parts > 1:
            time_s += reduce_s + batch * m * n * 4.0 * (parts + 1) * partial_s_per_byte
        return time_s, tile, parts, compute_s, memory_s, l2_s, walk_s

    splits = tensor or batch == 1 or kernels == "amd"
    best = p.fastest(product.tiles_for(gpu, precision, layout, batch > 1), splits, way_of)
    if batch == 1 and min(m, n) <= _THIN:
        rate = held(gpu, arithmetic_rate(gpu, precision), precision)
        compute_s = 2.0 * m * n * k / (c.thin_share * rate)
        memory_s = (sum(p.read_bytes) + written) * s_per_byte
        time_s = c.start_s + math.hypot(compute_s, memory_s)
        if time_s < best[0]:
            return ProductTime(time_s, Tile(n, m, rate / gpu.sm_count, 1.0, 0.0), 1, compute_s, memory_s, 0.0, 0.0)
    return ProductTime(*best)


@lru_cache(maxsize=256)
def _on_lanes(gpu: Gpu) -> Gpu:
    return replace(gpu, peak_flops_per_s={name: peak for name, peak in gpu.peak_flops_per_s.items() if name != "int8"})


def _walks(gpu: Gpu, p: PlacedProduct, layout: str) -> Callable[[Tile, int], float] | None:
    """Return what gives the seconds of translations of tiles that fetch so many bytes a row; None: there are none."""
    by_row, by_column = layout[0] == "N", layout[1] == "T"
    if not (by_row or by_column):
        return None
    c, few = gpu.constants["gemm"], gpu.traits.translations == "few"
    # Each row of tiles meets the rows of B again; rows of A are met once, after their translations were evicted.
    operands = max((p.m + c.walk_again * p.n) * p.k * p.element_bytes * p.batch, 1.0)
    far = c.walk_near + (1.0 - c.walk_near) / (1.0 + (c.walk_reach_bytes / operands) ** 2)
    known_pages = (c.pages_early if few else c.pages_late) * (1.0 + c.walk_held_bytes / operands)
    walks_per_s = (c.walks_early if few else c.walks_late) * gpu.boost_clock_Hz

    def walk_s_of(tile: Tile, fetched: int) -> float:
        rows, columns = min(tile.rows, p.m), min(tile.columns, p.n)
        fewer = min(rows, columns)
        # Rows within one page share one translation, which stays cached, so the number of further pages counts.  Tiles
        # follow one another, so their offsets within a page follow the greatest common divisor.
        span = fewer * p.k * p.element_bytes
        besides = min(fewer - 1.0, (span - math.gcd(span, _PAGE_BYTES)) / _PAGE_BYTES)
        missed = 1.0 / (1.0 + (known_pages / besides) ** 2) if besides > 0.0 else 0.0
        walked = (rows * far * by_row + columns * far * by_column) * missed
        return fetched / _SECTOR_BYTES * walked / walks_per_s

    return walk_s_of


# -- products of experts ---------------------------------------------------------------


STREAMS = 4  # of Transformer Engine (multi_stream_cublas_gemm)


def grouped_cost(gpu: Gpu, kernel: GroupedGemm) -> KernelCost:
    """Return the cost of *kernel* on *gpu*; raises InputError where the device has no figure for its precision."""
    cold = cold_device(gpu)
    assert isinstance(cold, Gpu)
    hits = resident_share(gpu, kernel.bytes)  # matrices of one expert are in no cache after those of the others
    warm_s = _products_s(gpu, kernel) if hits else 0.0
    products_s = hits * warm_s + (1.0 - hits) * _products_s(cold, kernel)
    moved = float(kernel.bytes)
    written = float(kernel.batch * kernel.result_bytes) / (1 + kernel.adds)
    memory_s = memory_time(gpu, moved - written, written)
    energy_s = energy_time(gpu, kernel.precision, kernel.flop, moved * (1.0 - hits))
    time_s = max(products_s, energy_s)
    bound = bound_of(time_s, max(energy_s, products_s - memory_s), memory_s)
    grouping: Grouping = "loop" if kernel.grouping == "kernel" and not _is_one(kernel) else kernel.grouping
    return KernelCost(time_s, bound, kernel.flop, moved, f"{kernel.batch} products, {_WORDS[grouping]}")


_WORDS = {"kernel": "in one kernel", "streams": f"on {STREAMS} streams", "loop": "one after the other"}


def _is_one(kernel: GroupedGemm) -> bool:
    """Return whether one kernel has all products: there is none for 32 bits (PyTorch's ``_grouped_mm_fallback``)."""
    return kernel.grouping == "kernel" and kernel.precision not in ("fp32", "tf32")


def _products_s(gpu: Gpu, kernel: GroupedGemm) -> float:
    if _is_one(kernel):
        # The tiles of all fill the SMs together, and those of the largest product at least take their own time.
        shares = [product_time(gpu, replace(one, batch=kernel.batch)).time_s / kernel.batch for one, _ in kernel.groups]
        whole_s = sum(share * count for share, (_, count) in zip(shares, kernel.groups, strict=True))
        return max(whole_s, *(product_time(gpu, one).time_s for one, _ in kernel.groups))
    if kernel.grouping != "streams":
        return sum(count * product_time(gpu, one).time_s for one, count in kernel.groups)
    return sum(count * _beside_others_s(gpu, one) for one, count in kernel.groups)


def _beside_others_s(gpu: Gpu, one: Gemm) -> float:
    """Return the seconds of a product on one of the streams: its share of the SMs' time, and of the device's."""
    alone = product_time(gpu, one)
    tile = alone.tile
    waves = -(-one.m // tile.rows) * -(-one.n // tile.columns) * alone.parts / gpu.sm_count
    busy = max(1.0 / STREAMS, waves / math.ceil(waves))
    taken = gpu.constants["contention"].idle_taken * (1.0 - busy)
    return max(alone.time_s * (1.0 - taken), product_time(gpu, replace(one, batch=STREAMS)).time_s / STREAMS)
