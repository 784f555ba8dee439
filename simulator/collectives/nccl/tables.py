"""Numbers of NCCL 2.30.7 that its tuner and its search plan with.

All are read in NVIDIA/nccl@5067397c, ``src/graph/{tuning.cc,topo.h,search.cc}`` and ``src/enqueue.cc`` (Apache-2.0).
They are planning figures, not measurements: an NVLink of an A100 is 20 GB/s here, whatever it reaches.  Latencies are
in microseconds, bandwidths in GB/s = 1e9 B/s, as NCCL keeps them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

__all__ = [
    "ALGORITHMS",
    "PATH_TYPES",
    "PROTOCOLS",
    "Algorithm",
    "CpuKind",
    "PathType",
    "Protocol",
    "generation",
    "planned_nvlink",
    "planned_pcie",
    "search_speeds",
]

Algorithm = Literal["tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"]
Protocol = Literal["LL", "LL128", "Simple"]
# In NCCL's order: of two that take equally long the first is chosen.
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)

PathType = Literal["loc", "nvl", "nvb", "c2c", "pix", "pxb", "p2c", "pxn", "phb", "sys", "net"]
PATH_TYPES: tuple[PathType, ...] = get_args(PathType)  # best first
CpuKind = Literal["intel", "amd", "arm", "ibm", "mixed", "other"]

Triple = tuple[float, float, float]

# -- tuning.cc: latencies, in the order of PROTOCOLS -------------------------------------

_NONE = (0.0, 0.0, 0.0)


class Latencies(NamedTuple):
    """What an algorithm takes at all, and for each hop over NVLink, PCIe and the network."""

    base_us: Triple
    nvlink_us: Triple
    pcie_us: Triple
    network_us: Triple


LATENCIES: Mapping[Algorithm, Latencies] = {
    "tree": Latencies((6.8, 14.0, 8.4), (0.6, 1.25, 4.0), (1.0, 1.9, 4.0), (5.0, 8.5, 14.0)),
    "ring": Latencies((6.6, 14.0, 8.4), (0.6, 1.9, 3.4), (1.0, 2.5, 5.7), (2.7, 4.0, 14.0)),
    "collnet_direct": Latencies(_NONE, (0.0, 0.0, 3.7), (0.0, 0.0, 3.7), (0.0, 0.0, 31.0)),
    "collnet_chain": Latencies(_NONE, (0.0, 0.0, 2.8), (0.0, 0.0, 2.8), (0.0, 0.0, 30.0)),
    "nvls": Latencies(_NONE, (0.0, 0.0, 25.0), _NONE, (0.0, 0.0, 18.0)),
    "nvls_tree": Latencies(_NONE, (0.0, 0.0, 25.0), _NONE, (0.0, 0.0, 20.9)),
    "pat": Latencies((8.0, 8.0, 8.0), (0.0, 0.0, 4.0), (0.0, 0.0, 4.0), (0.0, 0.0, 14.0)),
}
COLLNET_ARITY_US = 0.4  # a GPU more in a collnet_direct group
PAT_LOG_SHARE = 3.5  # network hops of PAT overlap: one counts 1 / 3.5
PAT_LINEAR_US = 2.8  # for each rank


def post_overhead_us(cpu: CpuKind) -> float:
    """Return what one network operation costs the proxy thread; three times that for Simple."""
    return 2.0 if cpu == "amd" else 1.0


# -- tuning.cc: bandwidth caps; rows by GPU generation, columns for 1, 2 and more nodes ---


def generation(compute_capability: int) -> int:
    """Return the row of the tables: 0 Volta and older, 1 Ampere, 2 Hopper, 3 Blackwell."""
    return sum(compute_capability >= first for first in (80, 90, 100))


# Row by the GPU within a node; across nodes row 0 for Intel and others, row 1 for AMD and mixed.
LL_MAX: tuple[Triple, ...] = ((39.0, 39.0, 20.4), (87.7, 22.5, 19.0), (141.0, 45.0, 35.0), (282.0, 90.0, 70.0))
# Per channel:
RING_LL128_MAX: tuple[Triple, ...] = ((20.0, 20.0, 20.0), (20.0, 20.0, 20.0), (36.7, 36.7, 36.7), (40.0, 40.0, 40.0))
TREE_LL128_MAX: tuple[Triple, ...] = ((20.0, 20.0, 20.0), (20.0, 20.0, 20.0), (36.7, 36.7, 29.0), (55.6, 31.67, 20.0))
TREE_MAX: tuple[Triple, ...] = ((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (38.7, 41.4, 36.0), (70.0, 42.8, 24.0))
NVLS_TREE_MAX: tuple[Triple, ...] = ((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (0.0, 57.7, 45.5), (0.0, 96.0, 80.0))
NVLS_EFFICIENCY = (0.0, 0.0, 0.85, 0.74)

# Share of the modelled bandwidth that a tree reaches, by floor(log2(size / 64 B)).
TREE_CORRECTION: Mapping[Protocol, tuple[float, ...]] = {
    "LL": (
        *(1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5),
        *(0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0),
    ),
    "LL128": (
        *(1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6),
        *(0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1.0, 1.0, 1.0),
    ),
    "Simple": (
        *(0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5),
        *(0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9),
    ),
}
TREE_CORRECTED_UP_TO = 22  # last index used for trees; NVLS trees use one more

# -- enqueue.cc: channels and threads ---------------------------------------------------

MAX_CHANNELS = 64
THREADS: Mapping[Protocol, int] = {"LL": 512, "LL128": 640, "Simple": 512}
NVLS_THREADS = 640
MAX_NVLS_HEADS = 32
FEW_THREADS = 256  # of a Simple ring no faster than one PCIe 3 x16
BYTES_PER_THREAD: Mapping[Protocol, int] = {"LL": 8, "LL128": 8, "Simple": 64}
COLLNET_BYTES_PER_THREAD = 512
NVLS_CHUNK = 128 * 1024  # bytes of one head in one channel (src/transport/nvls.cc)
NVLS_CHUNK_EFA = 512 * 1024  # as the plugin for EFA sets it (aws/aws-ofi-nccl, log of issue 715)
NVLS_TREE_CHUNK_FAR, NVLS_TREE_FAR_HOSTS = 64 * 1024, 4  # bytes at most from so many machines on
# Below so many rounds of chunks under way: chunks of so many bytes at most.
NVLS_CHUNKS = ((64, 64 * 1024), (8, 32 * 1024), (2, 16 * 1024))
NVLS_TREE_CHUNKS = ((32, 256 * 1024), (16, 128 * 1024), (4, 64 * 1024), (1, 32 * 1024))
P2P_CHUNK = 512 * 1024  # bytes of a channel over NVLink (src/init.cc)
P2P_CHANNELS = 32  # what point to point gets where a switch joins the GPUs

# -- topo.h: what the search takes a link for -------------------------------------------

PCIE3_X16 = 12.0
LOCAL = 5000.0
INTEL_P2P_OVERHEAD = 6 / 5  # GPU to GPU through an Intel CPU takes this much more of each PCIe link


def planned_nvlink(compute_capability: int) -> float:
    """Return GB/s of one NVLink, one direction, of a GPU of *compute_capability* (70 for 7.0)."""
    if compute_capability == 86:  # GA102 has slower links than GA100
        return 12.0
    for first, speed in ((100, 40.1), (90, 20.6), (70, 20.0), (60, 18.0)):
        if compute_capability >= first:
            return speed
    return 20.0


def planned_pcie(nominal_Bps: float) -> float:
    """Return the GB/s that NCCL plans for a PCIe link whose nominal rate is *nominal_Bps*.

    NCCL reads generation and width and takes lanes x rate / 80, the rate being 60 for 8 GT/s; a topology gives the
    nominal rate, 16 lanes x 8 GT/s x 128/130 = 15.754 GB/s for x16 of generation 3.  Rates within 4 % of a power of two
    times one such lane are taken for it, so that 16 GB/s is 12 as well and the 4 and 8 GB/s of generations 1 and 2 are
    3 and 6; others are scaled.
    """
    lanes = nominal_Bps / (8e9 * 128 / 130 / 8)
    whole = 2.0 ** round(math.log2(lanes))
    return (whole if abs(lanes / whole - 1) < 0.04 else lanes) * 60 / 80


# Between CPUs, by architecture (substring of the part's, lower case), then by vendor.
INTEL_SOCKET: tuple[tuple[tuple[str, ...], float], ...] = (
    (("emerald", "granite"), 40.0),
    (("sapphire",), 22.0),
    (("skylake", "cascade", "cooper", "ice lake"), 10.0),
)
INTEL_SOCKET_OLD = 6.0
SOCKET: Mapping[str, float] = {"amd": 16.0, "ibm": 32.0, "arm": 6.0}

# -- search.cc: speeds tried for one channel, fastest first ------------------------------

SPEEDS_INTRA: tuple[tuple[float, ...], ...] = (
    (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3),
    (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3),
    (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18),
)
SPEEDS_INTER: tuple[tuple[float, ...], ...] = (
    (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12),
    (48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
    (96, 86, 80, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
)


def search_speeds(compute_capability: int, *, inter: bool) -> tuple[float, ...]:
    """Return the speeds (GB/s) that the search tries, for the oldest GPU of the communicator."""
    row = sum(compute_capability >= first for first in (90, 100))
    return (SPEEDS_INTER if inter else SPEEDS_INTRA)[row]
