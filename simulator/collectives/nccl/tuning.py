"""NCCL's cost model: the algorithm and protocol that it chooses, and the time that it expects.

``time = latency + size / bandwidth``, both from tables and a few caps, for every enabled pair of algorithm and
protocol; the pair with the least time is chosen.  As in NVIDIA/nccl@5067397c (2.30.7) ``src/graph/tuning.cc``
(ncclTopoTuneModel, ncclTopoGetAlgoTime) and ``src/enqueue.cc``, for a group with one operation; what earlier versions
do otherwise is in :mod:`simulator.collectives.nccl.rules`.  Sizes are those of nccl-tests (see
:mod:`simulator.workload`), which NCCL uses too.

Interpretations where the source leaves room:

* NCCL searches a graph for each algorithm.  Here ring, tree and PAT share one; a tree may
  have a higher ``tree_bw_intra_GBps``, which the search finds on slow networks, and NVLS has its own
  heads and speeds.
* Inside a node, only ``nvl`` has NVLink's hop latency; a hop through another GPU (``nvb``) costs as
  much as PCIe.
* Sums over the ranks of a node use n_ranks / n_nodes: exact for bandwidths, rounded down for
  latencies.
* NVLS inside one node is capped by ``nvls_bw_inter_GBps`` too, although no data pass a NIC, because
  NCCL computes it so.
* CollNet, and NVLS over several nodes, need a plugin of the network and are left out.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from simulator.collectives.nccl import tables as t
from simulator.collectives.nccl.rules import Rules, rules_of
from simulator.collectives.nccl.tables import PATH_TYPES, CpuKind, PathType
from simulator.collectives.request import Unsuitable
from simulator.questions.collective import ALGORITHMS, PROTOCOLS, Algorithm, Protocol
from simulator.questions.nccl import FEATURES, Version, has, version_words
from simulator.questions.where import NCCL_TODAY
from simulator.records import dataclass
from simulator.workload import Collective

_RING_ONLY = ("broadcast", "reduce")
_GATHERING = ("all-gather", "reduce-scatter")
_ALLOWED: dict[Collective, tuple[Algorithm, ...]] = {
    "all-reduce": ("tree", "ring", "nvls", "nvls_tree"),
    "all-gather": ("ring", "nvls", "pat"),
    "reduce-scatter": ("ring", "nvls", "pat"),
    "broadcast": ("ring",),
    "reduce": ("ring",),
}
_SIMPLE_ONLY = ("nvls", "nvls_tree", "pat")


@dataclass(frozen=True, slots=True)
class CommGraph:
    """The search's result for a communicator, as plain numbers.

    ``n_channels`` is the search's number C; the communicator runs ``comm_channels``, usually twice as many.  Speeds are
    per channel, for C channels.  Compute capabilities are NCCL's numbers, such as 70 for 7.0.  ``nvls_channels`` is 0
    if NVLS cannot be used.
    """

    n_ranks: int
    n_nodes: int
    n_channels: int
    bw_intra_GBps: float
    bw_inter_GBps: float
    type_intra: PathType
    type_inter: PathType
    compute_capability_min: int
    compute_capability_max: int
    cpu: CpuKind
    comm_channels: int
    most_channels: int = t.MAX_CHANNELS
    peer_channels: int | None = None  # to a rank of another node (NCCL_NCHANNELS_PER_NET_PEER)
    nic_latency_us: float = 0.0
    algorithms: tuple[Algorithm, ...] | None = None  # to which the network's setup limits the choice
    flags_beside_data: bool = True  # the network delivers in order, as LL and LL128 require
    has_nvlink_switch: bool = False
    same_channels: bool = True  # all channels have the same ring inside a node
    tree_bw_intra_GBps: float | None = None  # None: same as the ring's
    nvls_channels: int = 0
    nvls_bw_intra_GBps: float = 0.0
    nvls_bw_inter_GBps: float = 0.0
    version: Version = NCCL_TODAY  # of the NCCL that chooses

    @property
    def rules(self) -> Rules:
        """The rules by which that version chooses."""
        return rules_of(self.version)

    @property
    def channels_to_a_peer(self) -> int:
        """The channels of a send to another node: fewer among many ranks (``src/graph/paths.cc``, since 2.20)."""
        most = 1 << (self.comm_channels - 1).bit_length()
        return self.peer_channels or (2 if 2 * self.n_ranks <= 4 * most else 1)

    @property
    def ranks_per_node(self) -> float:
        """The average number of ranks per node."""
        return self.n_ranks / self.n_nodes


@dataclass(frozen=True, slots=True)
class NcclChoice:
    """One algorithm with one protocol, and the model's expectation for a size.

    ``time_us`` is ``latency_us + size_bytes / (1000 algbw_GBps)``; both terms include the corrections for the size.
    """

    algorithm: Algorithm
    protocol: Protocol
    latency_us: float
    algbw_GBps: float
    time_us: float


def fastest_choice(
    graph: CommGraph,
    collective: Collective,
    size_bytes: float,
    *,
    algorithms: Collection[Algorithm] | None = None,
    protocol: Protocol | None = None,
) -> NcclChoice:
    """Return the candidate with the least time; of equal ones, the first in NCCL's order.

    *algorithms*: consider only these (NCCL_ALGO).
    *protocol*: consider only this one (NCCL_PROTO).

    Raises Unsuitable if no algorithm is enabled, as for a single rank or a collective without algorithms.
    """
    found = candidates(graph, collective, size_bytes, algorithms=algorithms)
    found = [each for each in found if protocol in (None, each.protocol)]
    if not found:
        late = [a for a in algorithms or () if not has(graph.version, a)]
        if late:
            came = version_words(FEATURES[late[0]].version)
            raise Unsuitable(f"NCCL {version_words(graph.version)} has no {late[0]}, which came with {came}")
        wanted = "" if algorithms is None else " among " + ", ".join(sorted(algorithms))
        wanted += "" if protocol is None else f" with {protocol}"
        raise Unsuitable(f"NCCL has no algorithm for {collective} on {graph.n_ranks} ranks{wanted}")
    return min(found, key=lambda choice: choice.time_us)


def candidates(
    graph: CommGraph, collective: Collective, size_bytes: float, *, algorithms: Collection[Algorithm] | None = None
) -> list[NcclChoice]:
    """Return every enabled pair of algorithm and protocol, in NCCL's order.

    *graph*: the search's result.
    *collective*: all-to-all and send-recv have no algorithms, so the result is empty.
    *size_bytes*: nccl-tests' size.
    *algorithms*: consider only these (NCCL_ALGO); naming an algorithm does not enable it.
    """
    found: list[NcclChoice] = []
    for algorithm in ALGORITHMS:
        if algorithms is not None and algorithm not in algorithms:
            continue
        for protocol in PROTOCOLS:
            figures = model(graph, collective, algorithm, protocol)
            if figures is None:
                continue
            latency, algbw = _at_size(graph, collective, algorithm, protocol, size_bytes, figures)
            time = latency + size_bytes / (1000 * algbw)
            found.append(NcclChoice(algorithm, protocol, latency, algbw, time))
    return found


def model(
    graph: CommGraph, collective: Collective, algorithm: Algorithm, protocol: Protocol
) -> tuple[float, float] | None:
    """Return (latency in us, algbw in GB/s) as NCCL_DEBUG_SUBSYS=TUNING prints them, before corrections; or None."""
    if graph.n_ranks < 2 or not _enabled(graph, collective, algorithm, protocol):
        return None
    algbw = _algbw(graph, collective, algorithm, protocol)
    return (_latency_us(graph, collective, algorithm, protocol), algbw) if algbw > 0 else None


# -- enabled pairs -----------------------------------------------------------------------


def _enabled(graph: CommGraph, collective: Collective, algorithm: Algorithm, protocol: Protocol) -> bool:
    if algorithm not in _ALLOWED.get(collective, ()) or not has(graph.version, algorithm):
        return False
    several = graph.n_nodes > 1
    if protocol != "Simple" and (algorithm in _SIMPLE_ONLY or (several and not graph.flags_beside_data)):
        return False
    if algorithm in ("nvls", "nvls_tree"):
        if not graph.has_nvlink_switch or graph.compute_capability_min < 90 or graph.nvls_channels < 2:
            return False
        if algorithm == "nvls_tree":
            return several
        if collective in _GATHERING and (graph.n_ranks > t.MAX_NVLS_HEADS or not graph.rules.nvls_gathers):
            return False
        return not several
    if algorithm == "pat":
        return graph.n_ranks == graph.n_nodes and graph.compute_capability_min >= 60
    return protocol != "LL128" or (has(graph.version, "ll128") and _ll128(graph))


def _ll128(graph: CommGraph) -> bool:
    """Return whether stores of 128 B arrive whole: NVLink inside nodes, GPUDirect between them, one kind of GPU."""
    low, high = graph.compute_capability_min, graph.compute_capability_max
    farthest = "pxn" if low >= 90 else "pxb"
    across = graph.n_nodes == 1 or PATH_TYPES.index(graph.type_inter) <= PATH_TYPES.index(farthest)
    inside = PATH_TYPES.index(graph.type_intra) <= PATH_TYPES.index(graph.rules.ll128_inside)
    known = graph.rules.ll128_on
    chips = low >= 70 and (low == high or low >= 90) if known is None else low == high and low in known
    return across and inside and chips


# -- bandwidth, in GB/s ------------------------------------------------------------------


def _n_steps(collective: Collective, n_ranks: int) -> int:
    if collective == "all-reduce":
        return 2 * (n_ranks - 1)
    return n_ranks - 1 if collective in _GATHERING else n_ranks


def _algbw(graph: CommGraph, collective: Collective, algorithm: Algorithm, protocol: Protocol) -> float:
    bus = _busbw(graph, collective, algorithm, protocol)
    if collective in _GATHERING and algorithm != "ring":
        return bus
    if algorithm in ("ring", "nvls", "nvls_tree"):
        return bus * graph.n_ranks / _n_steps(collective, graph.n_ranks)
    return bus / 2


def _busbw(graph: CommGraph, collective: Collective, algorithm: Algorithm, protocol: Protocol) -> float:
    row, column = t.generation(graph.compute_capability_min), min(graph.n_nodes, 3) - 1
    if algorithm in ("nvls", "nvls_tree"):
        return _nvls_busbw(graph, collective, algorithm, row, column)
    rules, channels = graph.rules, graph.n_channels
    near = graph.n_nodes <= 2
    bus = min(channels * (graph.bw_intra_GBps if near else graph.bw_inter_GBps), rules.bus_max[row])
    alone = graph.n_ranks == graph.n_nodes
    ll_row = row if graph.n_nodes == 1 else int(graph.cpu in ("amd", "mixed"))
    ll_max = rules.ll_max[ll_row][column]
    each = (rules.ll128_each or {}).get(collective, math.inf)
    if algorithm == "ring":
        if protocol == "LL":
            copies = graph.n_nodes == 1 and collective not in ("all-reduce", "reduce")
            return min(ll_max, bus * rules.ring_ll_share[copies])
        if protocol == "LL128":
            total = (rules.ring_ll128_total or {}).get(collective, math.inf)
            share = rules.ring_ll128_share[graph.ranks_per_node < 2]
            return min(share * bus, channels * min(each, rules.ring_ll128_max[row][column]), total)
    elif algorithm == "tree":
        if near and graph.tree_bw_intra_GBps is not None:
            bus = min(channels * graph.tree_bw_intra_GBps, rules.bus_max[row])
        bus = min(rules.tree_share * bus, channels * rules.tree_max[row][column], rules.tree_total_max[column])
        if protocol == "LL":
            bus = min(bus * rules.tree_ll_share, ll_max)
        elif protocol == "LL128":
            share = rules.tree_ll128_share[graph.n_nodes > 1]
            bus = min(bus * share, channels * min(each, rules.tree_ll128_max[row][column]))
        if alone:  # one GPU carries all of a node's traffic
            bus *= rules.tree_alone
    elif algorithm == "pat":
        bus *= 0.75
    return bus


def _nvls_busbw(graph: CommGraph, collective: Collective, algorithm: Algorithm, row: int, column: int) -> float:
    heads, per_node, nodes = graph.nvls_channels, graph.ranks_per_node, graph.n_nodes
    to_bus = _n_steps(collective, graph.n_ranks) / graph.n_ranks  # the caller divides by it
    near, far = graph.nvls_bw_intra_GBps, graph.nvls_bw_inter_GBps
    match graph.rules.nvls:
        case "ring":  # 2.17: the rings' graph stands for NVLS
            return 0.75 * to_bus * min(graph.n_channels * graph.bw_intra_GBps, graph.rules.bus_max[row])
        case "intra":
            share = 5 / 6 if algorithm == "nvls" else 0.7 * nodes / (2 * (nodes - 1))
            return share * to_bus * heads * (near if nodes <= 2 else far)
        case "both":
            far /= 2 if nodes > 2 and algorithm == "nvls_tree" else 1
            return 5 / 6 * to_bus * heads * min(near, far)
    intra = graph.nvls_bw_intra_GBps * t.NVLS_EFFICIENCY[row] * (heads - 1) / heads
    intra *= 2 if collective == "all-reduce" else (per_node - 1) / per_node
    inter = graph.nvls_bw_inter_GBps * (2 if graph.n_nodes <= 2 and algorithm == "nvls_tree" else 1)
    speeds = [intra, inter]
    if algorithm == "nvls_tree":
        speeds.append(t.NVLS_TREE_MAX[row][column])
    return heads * min(speeds)


# -- latency -----------------------------------------------------------------------------


def _latency_us(graph: CommGraph, collective: Collective, algorithm: Algorithm, protocol: Protocol) -> float:
    p = PROTOCOLS.index(protocol)
    nodes = graph.n_nodes
    others = graph.n_ranks // nodes - 1  # ranks of a node except the first
    log_nodes = nodes.bit_length() - 1
    base = graph.rules.latencies[algorithm].base_us[p]
    hop = _hop_us(graph, algorithm, p)
    rules = graph.rules
    alone = rules.alone_as_tree and graph.n_ranks == nodes
    network = rules.latencies["tree" if alone else algorithm].network_us[p]
    if rules.nic_latency == "adds":
        network += graph.nic_latency_us * (2 if protocol == "Simple" else 1)  # Simple flushes after receiving
    elif rules.nic_latency == "replaces":
        network = graph.nic_latency_us or network
    if algorithm == "ring":
        steps = _n_steps(collective, graph.n_ranks)
        if collective in _RING_ONLY:
            if graph.same_channels:
                return base + _pace_us(graph, "ring", p)
            return base + steps * _pace_us(graph, "tree" if protocol == "Simple" else "ring", p)
        crossing = (2 if collective == "all-reduce" else 1) * (nodes - 1)
        if nodes > 1 and rules.crossing != "between":
            crossing = steps if rules.crossing == "all" else 2 * nodes if collective == "all-reduce" else crossing
        if nodes > 1 and rules.posts:
            hop = max(hop, (t.POST_AMD_US if graph.cpu == "amd" else t.POST_US) * (3 if protocol == "Simple" else 1))
        return base + (steps - crossing) * hop + crossing * network
    if algorithm == "tree":
        return base + 2 * (others * hop + log_nodes * network)
    if algorithm == "nvls":
        return base + hop
    if algorithm == "nvls_tree":
        return base + hop + 2 * (nodes - 1 if rules.nvls == "intra" else log_nodes) * network
    return base + log_nodes * network / t.PAT_LOG_SHARE + graph.n_ranks * t.PAT_LINEAR_US


def _hop_us(graph: CommGraph, algorithm: Algorithm, p: int) -> float:
    """Return the latency of one hop inside a node, in us."""
    factor = graph.rules.ll_hop_factor if graph.n_nodes > 1 and PROTOCOLS[p] == "LL" else 1.0
    if graph.type_intra == "nvl":
        return factor * graph.rules.latencies[algorithm].nvlink_us[p]
    if graph.cpu == "ibm" and algorithm == "tree" and PROTOCOLS[p] == "Simple":
        algorithm = "ring"  # to favour trees on POWER
    return factor * graph.rules.latencies[algorithm].pcie_us[p]


def _pace_us(graph: CommGraph, algorithm: Algorithm, p: int) -> float:
    """Return the latency of a ring's slowest class of hop, in us."""
    return graph.rules.latencies[algorithm].network_us[p] if graph.n_nodes > 1 else _hop_us(graph, algorithm, p)


# -- at a size ---------------------------------------------------------------------------


def _at_size(
    graph: CommGraph,
    collective: Collective,
    algorithm: Algorithm,
    protocol: Protocol,
    size_bytes: float,
    figures: tuple[float, float],
) -> tuple[float, float]:
    """Return (latency in us, algbw in GB/s), corrected for the size as NCCL does."""
    latency, algbw = figures
    if collective != "all-reduce":
        return figures
    step = int(size_bytes // 64).bit_length() - 1
    x86 = graph.cpu in ("intel", "amd", "mixed")
    rules, correction = graph.rules, graph.rules.tree_correction[protocol]
    if algorithm == "tree" and 0 <= step < min(len(correction), t.TREE_CORRECTED_UP_TO + 1):
        algbw *= correction[step]
    elif algorithm == "nvls_tree" and graph.compute_capability_min >= 100 and x86 and rules.nvls == "efficiency":
        if 0 <= step < len(correction):
            algbw *= correction[step]
    elif algorithm == "ring" and protocol == "Simple" and graph.n_nodes > 1:
        per_rank = 64 * graph.comm_channels if rules.plateau_by_channel else 4096
        if size_bytes // graph.n_ranks >= per_rank:
            latency *= rules.plateau[t.generation(graph.compute_capability_min)]
    return latency, algbw
