"""Products of experts: all in one kernel, or a kernel each, on several streams or one after the other.

In one kernel, the tiles of all products fill the SMs together.  A library that is called for each product cuts it as if
it were alone, and mostly fills the SMs; what it leaves, the kernels of other streams take.  So each product takes its
time alone, times the share of the SMs that its blocks keep busy; on one stream, the whole of it.

However the products are issued, the board supplies the energy of all, and of the weights that stream through memory
beside them: a tile of few rows multiplies little of each byte.  A B200 multiplies 512 rows by each of 64 matrices of
4096 x 7168 at 0.83 PFLOP/s and 9,832 rows at 1.07 (SimuMax, Transformer Engine's GroupedLinear).
"""

from __future__ import annotations

import math

from simulator.devices import KernelCost, bound_of
from simulator.devices.dispatch import ContentionCosts
from simulator.devices.gpu import Gpu
from simulator.devices.gpu.gemm import product_time
from simulator.devices.gpu.memory import memory_time, resident_share
from simulator.devices.gpu.rates import energy_time
from simulator.devices.predict import cold_device
from simulator.records import replace
from simulator.workload.kernels import Gemm
from simulator.workload.operators.grouped import GroupedGemm

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
    return KernelCost(time_s, bound, kernel.flop, moved, f"{kernel.batch} products, {_WORDS[kernel.grouping]}")


_WORDS = {"kernel": "in one kernel", "streams": f"on {STREAMS} streams", "loop": "one after the other"}


def _products_s(gpu: Gpu, kernel: GroupedGemm) -> float:
    """Return the seconds of all products, as they share the SMs."""
    if kernel.grouping == "kernel":
        # The tiles of all fill the SMs together, and those of the largest product at least take their own time.
        shares = [product_time(gpu, replace(one, batch=kernel.batch)).time_s / kernel.batch for one, _ in kernel.groups]
        whole_s = sum(share * count for share, (_, count) in zip(shares, kernel.groups, strict=True))
        return max(whole_s, *(product_time(gpu, one).time_s for one, _ in kernel.groups))
    if kernel.grouping == "loop":
        return sum(count * product_time(gpu, one).time_s for one, count in kernel.groups)
    return sum(count * _beside_others_s(gpu, one) for one, count in kernel.groups)


def _beside_others_s(gpu: Gpu, one: Gemm) -> float:
    """Return the seconds of a product on one of the streams: its share of the SMs' time, and of the device's."""
    alone = product_time(gpu, one)
    tile = alone.tile
    waves = -(-one.m // tile.rows) * -(-one.n // tile.columns) * alone.parts / gpu.sm_count
    busy = max(1.0 / STREAMS, waves / math.ceil(waves))
    taken = gpu.constants(ContentionCosts).idle_taken * (1.0 - busy)
    return max(alone.time_s * (1.0 - taken), product_time(gpu, replace(one, batch=STREAMS)).time_s / STREAMS)
