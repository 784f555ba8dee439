"""How a library cuts a matrix product into tiles, and products on tensor cores (docs/decisions/kernels.md)."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, get_args

from simulator.constants import Values
from simulator.devices import Bound, bound_of
from simulator.devices.gpu import TILES, Gpu, rates
from simulator.devices.gpu.memory import achieved_bandwidth, l2_bandwidth, resident_share
from simulator.records import dataclass, replace
from simulator.workload.kernels import Gemm
from simulator.workload.precision import ELEMENT_BYTES, Precision

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


if TYPE_CHECKING:
    from simulator.devices.gpu.convolution_algorithms import Implicit

Way = tuple[float, Tile, int, float, float, float, float]  # time, tile, parts of k and the times of four resources


class PlacedProduct:
    """A product on a device: the figures of its *sides* (m, n, k, batch) that do not depend on how it is cut."""

    def __init__(
        self,
        gpu: Gpu,
        sides: tuple[int, int, int, int],  # m, n, k and batch
        element_bytes: int,
        written_bytes: float,
        shares: tuple[float, float],  # of the memory's bandwidth and of L2's bytes
        read_bytes: tuple[float, float] | None = None,
    ) -> None:
        self.m, self.n, self.k, self.batch = m, n, k, batch = sides
        self.element_bytes, self.written_bytes, self.sm_count = element_bytes, written_bytes, gpu.sm_count
        self.read_bytes = read_bytes or (float(m * k * element_bytes), float(n * k * element_bytes))  # of A and B
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
            room = splits and most > 1 and _WAVES[-1] * self.sm_count >= 2 * count
            filling = {max(1, min(most, waves * self.sm_count // count)) for waves in _WAVES} if room else ()
            for parts in {1, *filling}:
                way = way_of(tile, parts)
                if best is None or way[0] < best[0]:
                    best = way
        assert best is not None
        return best


@lru_cache(maxsize=4096)
def tiles_for(gpu: Gpu, precision: Precision, layout: str, batched: bool) -> tuple[Tile, ...]:
    """Return the tiles that a library has for products in *precision* with *layout*, the largest first."""
    tensor, c = rates.computes_on_tensor_cores(gpu, precision), gpu.constants["gemm"]
    clock_Hz = rates.sustained_clock(gpu, precision)
    sm_rate = rates.arithmetic_rate(gpu, precision) / gpu.sm_count * clock_Hz / gpu.boost_clock_Hz
    # Since Ampere, lanes too have kernels whose threads copy operands while they multiply.
    hiding = gpu.constants["tensor_product.copies"].alone if gpu.traits.kernels == "ampere" else c.alone
    tiles = []
    for columns, rows in TILES["product"] if tensor else _tiles_on_lanes(gpu, layout, batched):
        share = _busy_share(gpu, tensor, columns, rows, layout)
        alone = hiding / (columns * rows)
        tiles.append(Tile(columns, rows, sm_rate * share, alone, c.tile_clocks / clock_Hz * min(1.0, 1.0 / alone)))
    return tuple(tiles)


def _tiles_on_lanes(gpu: Gpu, layout: str, batched: bool) -> Sequence[Sequence[int]]:
    """Return the tiles for which the library has kernels for arithmetic without tensor cores."""
    kernels = gpu.traits.kernels
    if kernels == "maxwell" and gpu.traits.small_sms and layout == "NT" and not batched:
        return TILES["product_on_lanes"]["maxwell, small"]  # type: ignore[no-any-return]
    of = f"{kernels}, batched" if batched and gpu.traits.wide_batches and kernels != "amd" else kernels
    return TILES["product_on_lanes"][of]  # type: ignore[no-any-return]


def _busy_share(gpu: Gpu, tensor: bool, columns: int, rows: int, layout: str) -> float:
    """Return the share of the time for which a tile keeps its lanes busy: 1 / (1 + cost (1/rows + 1/columns))."""
    c = gpu.constants["gemm"]
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


# -- on tensor cores, with asynchronous operand loads ------------------------------------


_STEP_K = 32
_SUM_BYTES = 4  # partial sums are in fp32
_LEAST_PIECE = 4  # bytes: the least that cp.async copies
_WHOLE_PIECE = 16  # bytes: the most that a thread copies at once, and the alignment that TMA requires


def is_pipelined(gpu: Gpu, precision: Precision) -> bool:
    """Return whether products in *precision* run on tensor cores with asynchronous operand loads."""
    return gpu.traits.operands in ("copies", "warps") and rates.computes_on_tensor_cores(gpu, precision)


def tensor_product_time(gpu: Gpu, kernel: Gemm, implicit: "Implicit | None" = None) -> ProductTime:
    """Return the time of *kernel* on *gpu*, of matrices or images; :func:`is_pipelined` must hold for them."""
    piece = _WHOLE_PIECE if implicit else _piece_bytes(kernel)
    by_warps = gpu.traits.operands == "warps"
    synchronous = by_warps and (implicit.synchronous if implicit else piece < _WHOLE_PIECE)
    both = gpu.constants["tensor_product"]
    c = gpu.constants["tensor_product.warps" if by_warps and not synchronous else "tensor_product.copies"]
    m, n, k, batch, element = kernel.m, kernel.n, kernel.k, kernel.batch, ELEMENT_BYTES[kernel.precision]
    written, read = (implicit.written_bytes, implicit.read_bytes) if implicit else (float(kernel.result_bytes), None)
    p = PlacedProduct(gpu, (m, n, k, batch), element, written, (c.bandwidth_share, both.l2_share), read)
    l2_Bps = max(l2_bandwidth(gpu) * c.l2_rate_share, p.memory_Bps)
    s_per_byte = p.hits / l2_Bps + (1.0 - p.hits) / p.memory_Bps
    clock_Hz = _top_clock(gpu)
    latency_s_per_k = both.latency_s * element / 2.0 * (1.0 - p.hits * (1.0 - both.cached))
    l2_Bps_per_sm = c.l2_clock_bytes * piece / _WHOLE_PIECE * clock_Hz
    if synchronous and piece < _LEAST_PIECE and kernel.layout == "NT":
        l2_Bps_per_sm *= both.narrow
    start_s, reduce_s = c.start_clocks / clock_Hz, c.reduce_clocks / clock_Hz
    partial_s_per_byte = 1.0 / (gpu.constants["gemm"].partial_speed * p.memory_Bps)
    # The board supplies the energy no sooner.
    energy_s = rates.energy_time(gpu, kernel.precision, implicit.flop if implicit else 2.0 * m * n * k * batch)
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
            time_s += reduce_s + sums * partial_s_per_byte + (implicit.parts_s if implicit else 0.0)
        if energy_s:
            time_s = (time_s**sharpness + energy_s**sharpness) ** (1.0 / sharpness)
        return time_s, tile, parts, compute_s, memory_s, l2_s, latency_s

    turned = (kernel.layout[0] == "T") + (kernel.layout[1] == "N")
    tiles = _tiles(gpu, kernel.precision, c, turned, synchronous=synchronous)
    if implicit:
        shares = ((tile, implicit.share(min(tile.rows, tile.columns))) for tile in tiles)
        tiles = tuple(replace(tile, sm_flops_per_s=tile.sm_flops_per_s * share) for tile, share in shares if share)
    found = p.fastest(tiles, True, way_of)
    return ProductTime(*found[:6], 0.0, found[6], piece, energy_s)


@lru_cache(maxsize=256)
def _top_clock(gpu: Gpu) -> float:
    """Return the clock, in Hz, of what is not multiplication: that of the format that leaves most power."""
    formats = (precision for precision in get_args(Precision) if rates.computes_on_tensor_cores(gpu, precision))
    return max(gpu.max_clock_Hz, *(rates.highest_clock(gpu, precision) for precision in formats))


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
def _tiles(gpu: Gpu, precision: Precision, c: Values, turned: int, *, synchronous: bool) -> tuple[Tile, ...]:
    """Return the tiles of products in *precision*, largest first; *synchronous*: with Ampere's instructions."""
    by_warps, both = gpu.traits.operands == "warps", gpu.constants["tensor_product"]
    # energy_time limits large products to the board's power
    clock_Hz = _top_clock(gpu) * gpu.calibration.compute if by_warps else rates.working_clock(gpu, precision)
    pace = rates.tensor_pace(gpu, precision)
    sm_rate = rates.arithmetic_rate(gpu, precision) / gpu.sm_count * clock_Hz / gpu.boost_clock_Hz
    sm_rate *= c.rate / (c.rate + (1.0 - c.rate) * pace)
    if synchronous:
        sm_rate = min(sm_rate, both.synchronous_flop_bytes / ELEMENT_BYTES[precision] * clock_Hz)
    edge_clocks = c.edge_clocks
    if precision == "tf32" and gpu.traits.turned_32_bit:
        sm_rate *= both.rate_32_bit
        if turned or not by_warps:
            edge_clocks = c.edge_32_bit_clocks
        if turned > 1 and by_warps:
            sm_rate *= both.both_turned
    found = []
    for columns, rows in TILES["product_of_copies"]:
        share = 1.0 / (1.0 + c.fetch * pace * (1.0 / columns + 1.0 / rows))
        alone = c.alone / (columns * rows)
        found.append(Tile(columns, rows, sm_rate * share, alone, edge_clocks / clock_Hz * min(1.0, 1.0 / alone)))
    return tuple(found)
