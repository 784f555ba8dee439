"""NCCL's cost model, by which it chooses algorithm and protocol (docs/decisions/collectives.md)."""

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import product
from typing import Any

from simulator.collectives.communicator import Unsuitable
from simulator.collectives.nccl import tables as t
from simulator.collectives.nccl.tables import PATH_TYPES, CpuKind, PathType, rules_of
from simulator.questions.collective import ALGORITHMS, PROTOCOLS, Algorithm, Protocol
from simulator.questions.where import FEATURES, NCCL_TODAY, Version, has, version_words
from simulator.records import dataclass
from simulator.workload import Collective

_RING_ONLY = ("broadcast", "reduce")
_GATHERING = ("all-gather", "reduce-scatter")
_SIMPLE_ONLY = ("nvls", "nvls_tree", "pat")


@dataclass(frozen=True, slots=True)
class CommGraph:
    """The search's result for a communicator, as plain numbers; speeds are per channel, for ``n_channels``."""

    n_ranks: int
    n_nodes: int
    n_channels: int  # the search's number C
    bw_intra_GBps: float
    bw_inter_GBps: float
    type_intra: PathType
    type_inter: PathType
    compute_capability_min: int  # NCCL's number, such as 70 for 7.0
    compute_capability_max: int
    cpu: CpuKind
    comm_channels: int  # of the communicator, usually twice C
    most_channels: int = t.MAX_CHANNELS
    peer_channels: int | None = None  # to a rank of another node (NCCL_NCHANNELS_PER_NET_PEER)
    nic_latency_us: float = 0.0
    algorithms: tuple[Algorithm, ...] | None = None  # to which the network's setup limits the choice
    flags_beside_data: bool = True  # the network delivers in order, as LL and LL128 require
    has_nvlink_switch: bool = False
    same_channels: bool = True  # all channels have the same ring inside a node
    tree_bw_intra_GBps: float | None = None  # None: same as the ring's
    nvls_channels: int = 0  # 0 if NVLS cannot be used
    nvls_bw_intra_GBps: float = 0.0
    nvls_bw_inter_GBps: float = 0.0
    version: Version = NCCL_TODAY  # of the NCCL that chooses

    @property
    def channels_to_a_peer(self) -> int:
        """The channels of a send to another node: fewer among many ranks (``src/graph/paths.cc``, since 2.20)."""
        return self.peer_channels or (2 if 2 * self.n_ranks <= 4 * self.p2p_channels else 1)

    @property
    def p2p_channels(self) -> int:
        """The channels of sends to all peers at once: the next power of two (``ncclTopoComputeP2pChannels``)."""
        return 1 << (self.comm_channels - 1).bit_length()

    @property
    def ranks_per_node(self) -> float:
        """The average number of ranks per node."""
        return self.n_ranks / self.n_nodes


@dataclass(frozen=True, slots=True)
class NcclChoice:
    """A pair with its ``time_us`` = ``latency_us`` + size / (1000 ``algbw_GBps``), both corrected for the size."""

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
    """Return the fastest candidate, the first of equals, of *algorithms* with *protocol*; raises Unsuitable."""
    found = candidates(graph, collective, size_bytes, algorithms=algorithms)
    found = [each for each in found if protocol in (None, each.protocol)]
    if not found:
        late = [a for a in algorithms or () if not has(graph.version, a)]
        if late:
            came = version_words(FEATURES[late[0]])
            raise Unsuitable(f"NCCL {version_words(graph.version)} has no {late[0]}, which came with {came}")
        wanted = "" if algorithms is None else " among " + ", ".join(sorted(algorithms))
        wanted += "" if protocol is None else f" with {protocol}"
        raise Unsuitable(f"NCCL has no algorithm for {collective} on {graph.n_ranks} ranks{wanted}")
    return min(found, key=lambda choice: choice.time_us)


def candidates(
    graph: CommGraph, collective: Collective, size_bytes: float, *, algorithms: Collection[Algorithm] | None = None
) -> list[NcclChoice]:
    """Return every enabled pair of algorithm (among *algorithms*, NCCL_ALGO) and protocol, in NCCL's order."""
    found: list[NcclChoice] = []
    for algorithm, protocol in product(ALGORITHMS, PROTOCOLS):
        if algorithms is None or algorithm in algorithms:
            pair = TunedPair(graph, collective, algorithm, protocol)
            figures = pair.figures()
            if figures is not None:
                latency, algbw = pair.at_size(size_bytes, *figures)
                found.append(NcclChoice(algorithm, protocol, latency, algbw, latency + size_bytes / (1000 * algbw)))
    return found


class TunedPair:
    """An algorithm with a protocol for a collective on *graph*: whether it is enabled, and its figures."""

    def __init__(self, graph: CommGraph, collective: Collective, algorithm: Algorithm, protocol: Protocol) -> None:
        self.graph, self.rules, self.nodes = graph, rules_of(graph.version), graph.n_nodes
        self.collective, self.algorithm, self.protocol = collective, algorithm, protocol
        self.p = PROTOCOLS.index(protocol)
        self.row, self.column = t.generation(graph.compute_capability_min), min(graph.n_nodes, 3) - 1
        n = graph.n_ranks
        self.steps = 2 * (n - 1) if collective == "all-reduce" else n - 1 if collective in _GATHERING else n

    def figures(self) -> tuple[float, float] | None:
        """Return (latency in us, algbw in GB/s) as NCCL_DEBUG_SUBSYS=TUNING prints them, uncorrected; or None."""
        if self.graph.n_ranks < 2 or not self._enabled():
            return None
        algbw = self._busbw()
        if self.collective not in _GATHERING or self.algorithm == "ring":
            both_ways = self.algorithm not in ("ring", "nvls", "nvls_tree")
            algbw = algbw / 2 if both_ways else algbw * self.graph.n_ranks / self.steps
        return (self._latency_us(), algbw) if algbw > 0 else None

    def at_size(self, size_bytes: float, latency: float, algbw: float) -> tuple[float, float]:
        """Return (latency in us, algbw in GB/s), corrected for the size as NCCL does."""
        if self.collective != "all-reduce":
            return latency, algbw
        graph, rules, algorithm = self.graph, self.rules, self.algorithm
        step, correction = int(size_bytes // 64).bit_length() - 1, rules.tree_correction[self.protocol]
        x86 = graph.cpu in ("intel", "amd", "mixed")
        if algorithm == "tree" and 0 <= step < min(len(correction), t.TREE_CORRECTED_UP_TO + 1):
            algbw *= correction[step]
        elif algorithm == "nvls_tree" and graph.compute_capability_min >= 100 and x86 and rules.nvls == "efficiency":
            if 0 <= step < len(correction):
                algbw *= correction[step]
        elif algorithm == "ring" and self.protocol == "Simple" and self.nodes > 1:
            per_rank = 64 * graph.comm_channels if rules.plateau_by_channel else 4096
            if size_bytes // graph.n_ranks >= per_rank:
                latency *= rules.plateau[self.row]
        return latency, algbw

    def _enabled(self) -> bool:
        graph, algorithm, protocol = self.graph, self.algorithm, self.protocol
        if algorithm not in t.PLANS["algorithms"].get(self.collective, ()) or not has(graph.version, algorithm):
            return False
        several = self.nodes > 1
        if protocol != "Simple" and (algorithm in _SIMPLE_ONLY or (several and not graph.flags_beside_data)):
            return False
        if algorithm in ("nvls", "nvls_tree"):
            if not graph.has_nvlink_switch or graph.compute_capability_min < 90 or graph.nvls_channels < 2:
                return False
            if algorithm == "nvls_tree":
                return several
            gathers = graph.n_ranks <= t.MAX_NVLS_HEADS and self.rules.nvls_gathers
            return not several and (gathers or self.collective not in _GATHERING)
        if algorithm == "pat":
            return graph.n_ranks == self.nodes and graph.compute_capability_min >= 60
        return protocol != "LL128" or (has(graph.version, "ll128") and self._ll128())

    def _ll128(self) -> bool:
        """Return whether stores of 128 B arrive whole: NVLink inside nodes, GPUDirect between them, one kind of GPU."""
        graph, known = self.graph, self.rules.ll128_on
        low, high = graph.compute_capability_min, graph.compute_capability_max
        farthest = "pxn" if low >= 90 else "pxb"
        across = self.nodes == 1 or PATH_TYPES.index(graph.type_inter) <= PATH_TYPES.index(farthest)
        inside = PATH_TYPES.index(graph.type_intra) <= PATH_TYPES.index(self.rules.ll128_inside)
        chips = low >= 70 and (low == high or low >= 90) if known is None else low == high and low in known
        return across and inside and chips

    def _busbw(self) -> float:
        if self.algorithm in ("nvls", "nvls_tree"):
            return self._nvls_busbw()
        graph, rules, column, channels = self.graph, self.rules, self.column, self.graph.n_channels
        near = self.nodes <= 2
        bus = min(channels * (graph.bw_intra_GBps if near else graph.bw_inter_GBps), rules.bus_max[self.row])
        ll_max = rules.ll_max[self.row if self.nodes == 1 else int(graph.cpu in ("amd", "mixed"))][column]
        each = (rules.ll128_each or {}).get(self.collective, math.inf)
        if self.algorithm == "pat":
            return 0.75 * bus
        if self.algorithm == "ring":
            if self.protocol == "LL":
                copies = self.nodes == 1 and self.collective not in ("all-reduce", "reduce")
                return min(ll_max, bus * rules.ring_ll_share[copies])
            if self.protocol == "LL128":
                total = (rules.ring_ll128_total or {}).get(self.collective, math.inf)
                share = rules.ring_ll128_share[graph.ranks_per_node < 2]
                return min(share * bus, channels * min(each, rules.ring_ll128_max[self.row][column]), total)
            return bus
        if near and graph.tree_bw_intra_GBps is not None:
            bus = min(channels * graph.tree_bw_intra_GBps, rules.bus_max[self.row])
        bus = min(rules.tree_share * bus, channels * rules.tree_max[self.row][column], rules.tree_total_max[column])
        if self.protocol == "LL":
            bus = min(bus * rules.tree_ll_share, ll_max)
        elif self.protocol == "LL128":
            share = rules.tree_ll128_share[self.nodes > 1]
            bus = min(bus * share, channels * min(each, rules.tree_ll128_max[self.row][column]))
        return bus * rules.tree_alone if graph.n_ranks == self.nodes else bus  # one GPU carries a node's traffic

    def _nvls_busbw(self) -> float:
        graph, nodes, heads = self.graph, self.nodes, self.graph.nvls_channels
        to_bus = self.steps / graph.n_ranks  # the caller divides by it
        near, far, is_tree = graph.nvls_bw_intra_GBps, graph.nvls_bw_inter_GBps, self.algorithm == "nvls_tree"
        match self.rules.nvls:
            case "ring":  # 2.17: the rings' graph stands for NVLS
                return 0.75 * to_bus * min(graph.n_channels * graph.bw_intra_GBps, self.rules.bus_max[self.row])
            case "intra":
                share = 0.7 * nodes / (2 * (nodes - 1)) if is_tree else 5 / 6
                return share * to_bus * heads * (near if nodes <= 2 else far)
            case "both":
                return 5 / 6 * to_bus * heads * min(near, far / (2 if nodes > 2 and is_tree else 1))
        tables: Mapping[str, Sequence[Any]] = t.PLANS["nvls"]
        intra: float = near * tables["efficiency"][self.row] * (heads - 1) / heads
        intra *= 2 if self.collective == "all-reduce" else (graph.ranks_per_node - 1) / graph.ranks_per_node
        inter = far * (2 if nodes <= 2 and is_tree else 1)
        return heads * min(intra, inter, tables["tree_max"][self.row][self.column] if is_tree else math.inf)

    def _latency_us(self) -> float:
        graph, rules, nodes, algorithm, p = self.graph, self.rules, self.nodes, self.algorithm, self.p
        others = graph.n_ranks // nodes - 1  # ranks of a node except the first
        log_nodes = nodes.bit_length() - 1
        base, hop, simple = rules.latencies[algorithm].base_us[p], self._hop_us(algorithm), self.protocol == "Simple"
        alone = rules.alone_as_tree and graph.n_ranks == nodes
        network = rules.latencies["tree" if alone else algorithm].network_us[p]
        if rules.nic_latency == "adds":
            network += graph.nic_latency_us * (2 if simple else 1)  # Simple flushes after receiving
        elif rules.nic_latency == "replaces":
            network = graph.nic_latency_us or network
        if algorithm == "ring":
            both_ways = self.collective == "all-reduce"
            if self.collective in _RING_ONLY:  # the slowest class of hop sets the pace
                slow: Algorithm = "tree" if simple and not graph.same_channels else "ring"
                pace = rules.latencies[slow].network_us[p] if nodes > 1 else self._hop_us(slow)
                return base + pace * (1 if graph.same_channels else self.steps)
            crossing = (2 if both_ways else 1) * (nodes - 1)
            if nodes > 1 and rules.crossing != "between":
                crossing = self.steps if rules.crossing == "all" else 2 * nodes if both_ways else crossing
            if nodes > 1 and rules.posts:
                hop = max(hop, (t.POST_AMD_US if graph.cpu == "amd" else t.POST_US) * (3 if simple else 1))
            return base + (self.steps - crossing) * hop + crossing * network
        if algorithm == "tree":
            return base + 2 * (others * hop + log_nodes * network)
        if algorithm == "nvls":
            return base + hop
        if algorithm == "nvls_tree":
            return base + hop + 2 * (nodes - 1 if rules.nvls == "intra" else log_nodes) * network
        return base + log_nodes * network / t.PAT_LOG_SHARE + graph.n_ranks * t.PAT_LINEAR_US

    def _hop_us(self, algorithm: Algorithm) -> float:
        factor = self.rules.ll_hop_factor if self.nodes > 1 and self.protocol == "LL" else 1.0
        if self.graph.type_intra == "nvl":
            return factor * self.rules.latencies[algorithm].nvlink_us[self.p]
        if self.graph.cpu == "ibm" and algorithm == "tree" and self.protocol == "Simple":
            algorithm = "ring"  # to favour trees on POWER
        return factor * self.rules.latencies[algorithm].pcie_us[self.p]
