"""The strategy ``nccl``: its choice, costs, and memory of communicators and DeepEP (docs/decisions/collectives.md)."""

from bisect import bisect_left
from collections.abc import Collection, Iterable
from contextlib import suppress
from math import ceil
from typing import cast

from simulator.collectives.communicator import Communicator, Request, Unsuitable
from simulator.collectives.nccl import tables as t
from simulator.collectives.nccl.cost import NcclCosts, costs_of
from simulator.collectives.nccl.graph import channel_rings, comm_graph, direct_protocol, fewest_nvlinks, with_peers
from simulator.collectives.nccl.kernels import KernelPlanner
from simulator.collectives.nccl.tables import version_notes
from simulator.collectives.nccl.tuning import CommGraph, NcclChoice, fastest_choice
from simulator.collectives.search import say_ended
from simulator.collectives.search.rings import FoundRing, find_rings
from simulator.errors import counted
from simulator.network.machine import Machine
from simulator.plan.plan import Flow, Plan, PlanBuilder
from simulator.questions.collective import ALGORITHMS, SENDING, Algorithm, Protocol
from simulator.questions.where import FEATURES, NCCL_TODAY, Version, has, version_words
from simulator.records import replace
from simulator.topology.parts import GpuPart
from simulator.units import format_bandwidth
from simulator.workload import Collective


def nvls_channels(graph: CommGraph) -> int:
    """Return the number of channels that NVLS uses."""
    return 16 if graph.compute_capability_min < 100 else 24 if graph.n_nodes == 1 else 32


def channels_used(graph: CommGraph, choice: NcclChoice, size_bytes: float) -> tuple[int, int, float]:
    """Return channels and threads launched for *choice*, and channels filled; few bytes remove channels first."""
    protocol, is_ring = choice.protocol, choice.algorithm == "ring"
    if choice.algorithm in ("nvls", "nvls_tree"):
        fixed = min(nvls_channels(graph), graph.most_channels)
        return fixed, t.NVLS_THREADS, fixed
    is_slow = is_ring and protocol == "Simple" and graph.n_channels * graph.bw_intra_GBps <= t.PCIE3_X16
    channels, threads = graph.comm_channels, t.FEW_THREADS if is_slow else t.PLANS["threads"][protocol]
    threshold = t.PLANS["bytes_per_thread"][protocol] * (graph.n_ranks if is_ring and protocol == "LL" else 1)
    filled = min(float(channels), max(1.0, size_bytes / (threads * threshold)))
    while channels > 1 and size_bytes < channels * threads * threshold:
        channels -= 1
    while threads % 128 == 0 and size_bytes < channels * threads * threshold:
        threads //= 2
    return channels, threads, filled


KEPT = "NCCL still chooses by the nominal rate of the slow links; by their present rate it would choose otherwise"
_TOLD_BELOW = 0.9  # of the rate for which the links have room


class Nccl:
    """NCCL of a *version*; *algorithm*, *protocol* in place of its choice, *in_switch*: a switch reduces, by *nvls*."""

    name = "nccl"
    summary = "what NCCL would do at that size: algorithm, protocol, channels and their latencies"

    def __init__(
        self,
        algorithm: str | None = None,
        costs: NcclCosts | None = None,
        *,
        in_switch: bool = True,
        nvls: bool = True,
        protocol: str | None = None,
        version: Version = NCCL_TODAY,
    ) -> None:
        self.algorithm, self.protocol = algorithm, protocol
        self.costs, self.version = costs or costs_of(version), version
        self.in_switch, self.nvls = in_switch, nvls

    def plan(self, request: Request) -> Plan:
        """Return the plan; raises Unsuitable if no algorithm is left, and for GPUs on which NCCL does not run."""
        if request.n_ranks < 2:
            return Plan(())
        usual = request.group.nominal
        plan = self._planned(replace(request, group=usual), request.machine)
        if usual is request.group:
            return plan
        try:
            otherwise = self._planned(request, request.machine)
        except Unsuitable:
            otherwise = Plan(())
        return plan if _way(plan) == _way(otherwise) else replace(plan, notes=(*plan.notes, KEPT))

    def _planned(self, request: Request, present: Machine) -> Plan:
        """Return the plan of *request* by the rates of its machine, to run on *present*; raises as :meth:`plan`."""
        request = replace(request, group=with_peers(request.group))
        parts = [node.part for node in request.group.unlike()]
        if any(isinstance(part, GpuPart) and part.vendor == "other" for part in parts):
            raise Unsuitable("NCCL does not run on this hardware")
        builder = PlanBuilder()
        builder.facts["software"] = "nccl"
        graph = self.graph(request.group)
        builder.notes += version_notes(self.version, graph.compute_capability_max)
        kernels = KernelPlanner(builder, request, self.costs, present)
        if request.collective in SENDING:
            if not has(self.version, "send-recv"):
                own, came = (version_words(version) for version in (self.version, FEATURES["send-recv"]))
                raise Unsuitable(f"NCCL {own} has no send and receive, which came with {came}")
            kernels.point_to_point(one_channel=has(self.version, "peers") and graph.channels_to_a_peer == 1)
            if request.collective == "all-to-all":
                builder.facts["channels"] = graph.p2p_channels
            return builder.build()
        direct = None if self.algorithm or self.protocol else direct_protocol(request, self.version)
        if direct is not None:
            kernels.direct(direct)
            builder.facts |= {"algorithm": "direct", "protocol": direct}
            builder.notes.insert(0, f"chosen: direct, {direct}")
            return builder.build()
        choice = self.choice(graph, request.collective, request.size_bytes)
        kernels.n_channels, _, kernels.n_filled = channels_used(graph, choice, request.size_bytes)
        builder.facts |= {"algorithm": choice.algorithm, "protocol": choice.protocol}
        builder.facts |= {"channels": kernels.n_channels, "planned_us": round(choice.time_us, 3)}
        if choice.algorithm in ("nvls", "nvls_tree"):
            kernels.nvls(graph.nvls_channels)
        else:
            rings = channel_rings(request.group, self.version)
            say_ended(builder.notes, [ring.whole for ring in rings])
            if choice.algorithm == "tree":
                kernels.tree(rings, choice.protocol)
            else:
                kernels.ring(rings, choice.protocol, log_steps=choice.algorithm == "pat")
            builder.notes += _what_could_be_won(request, rings)
        chosen = f"{choice.algorithm.replace('_', ' ')}, {choice.protocol}, {counted(kernels.n_channels, 'channel')}"
        builder.notes.insert(0, f"chosen: {chosen}")
        return builder.build()

    def graph(self, group: Communicator) -> CommGraph:
        """Return the graph with which this version plans for *group*."""
        return replace(comm_graph(with_peers(group), self.version), version=self.version)

    def choice(self, graph: CommGraph, collective: Collective, size_bytes: float) -> NcclChoice:
        """Return the algorithm and protocol for *collective* over *graph*; raises Unsuitable if none is left."""
        wanted = (cast(Algorithm, self.algorithm),) if self.algorithm else graph.algorithms
        adds = collective in ("all-reduce", "reduce-scatter")
        if wanted and collective != "all-reduce" and not has(self.version, "strict"):
            wanted = (*wanted, "ring")
        if not self.nvls or (adds and not self.in_switch):
            wanted = tuple(a for a in wanted or ALGORITHMS if not a.startswith("nvls"))
            if not wanted:
                why = "no switch reduces this type so" if self.nvls else "NVLS is off"
                raise Unsuitable(f"{why}, which {self.algorithm} needs; ring and tree do without")
        protocol = cast(Protocol, self.protocol) if self.protocol else None
        return fastest_choice(graph, collective, size_bytes, algorithms=wanted, protocol=protocol)


def _way(plan: Plan) -> object:
    """Return how *plan* moves its bytes: algorithm, protocol and channels, and the links and bytes of each flow."""
    flows = [(task.repeat, flow) for task in plan.tasks for flow in task.parts if isinstance(flow, Flow)]
    return [plan.facts.get(name) for name in ("algorithm", "protocol", "channels")], [
        (n, float(f"{flow.bytes:.9g}"), flow.at and flow.at.number, [(i, round(s, 9)) for i, s in flow.route.links])
        for n, flow in flows
    ]


def _what_could_be_won(request: Request, rings: list[FoundRing]) -> list[str]:
    """Return a note if NCCL's rings are slower than those for which the direct links have room."""
    if not any(ring.kind in ("nvl", "nvlink-relay") for ring in rings) or len(request.group.by_host()) > 1:
        return []
    best = find_rings(request.group, both_directions=True)
    found_Bps, best_Bps = (sum(ring.bandwidth_Bps for ring in each) for each in (rings, best))
    told = f"NCCL's search ends at rings of {format_bandwidth(found_Bps)}; the links have room for"
    won = "up to which a graph of your own (NCCL_GRAPH_FILE) could win"
    return [f"{told} {format_bandwidth(best_Bps)} (multi-ring), {won}"] if found_Bps < _TOLD_BELOW * best_Bps else []


NCCL = Nccl()


_PAGE = 2 * 2**20  # CUDA_IPC_MIN, and the granularity of cuMem
_STEPS = 8
_SIMPLE = 4 * 2**20
_HEAD = 4096  # heads and tails, before the buffers of a connection between GPUs
_SHARED_STEPS = 16
_NET_CHUNK, _NVLINK_CHUNK = 128 * 1024, 512 * 1024  # of sends and receives; over PCIe as over a network


def _pages(n_bytes: float) -> int:
    return ceil(n_bytes / _PAGE) * _PAGE


def _pair(ll: int, ll128: int) -> tuple[int, int]:
    """Return the bytes of a pair of connections with a GPU of the same machine, and over a network."""
    both = ll + ll128 + _SIMPLE
    return _pages(_HEAD) + _pages(_HEAD + both), _pages(ll128 + _SIMPLE) + _pages(both)


PEER_BYTES, NETWORK_BYTES = _pair(8 * 512 * _STEPS * 16, 120 * 640 * _STEPS * 8)
_OF_RCCL = _pair(8 * 256 * _STEPS * 16, 28 * 256 * _STEPS * 8)


def communicator_bytes(
    nccl: Nccl, group: Communicator, carried: Iterable[tuple[Collective, float]], n_peers: int = 0
) -> float:
    """Return the bytes on each GPU of *group*, NVIDIA's or AMD's, for *carried* sizes and sends to *n_peers* ranks."""
    vendors = {node.part.vendor if isinstance(node.part, GpuPart) else "" for node in group.unlike()}
    if group.n_ranks < 2 or vendors not in ({"nvidia"}, {"amd"}):
        return 0.0
    graph, taken = nccl.graph(group), _Taken(nccl, group, is_rccl=vendors == {"amd"})
    if taken.is_rccl:
        used = {"ring", "tree"}
    elif has(nccl.version, "lazy"):
        used = set()
        for collective, size_bytes in carried:
            with suppress(Unsuitable):
                used |= set() if collective in SENDING else {nccl.choice(graph, collective, size_bytes).algorithm}
    else:
        used = {name for name in ALGORITHMS if has(nccl.version, name)}
    return taken.collective_bytes(used) + taken.peer_bytes(n_peers) + taken.shared_bytes(n_peers)


class _Taken:
    """What *nccl* takes on a GPU of *group*, by its use."""

    def __init__(self, nccl: Nccl, group: Communicator, *, is_rccl: bool) -> None:
        self.is_rccl = is_rccl
        peer, network = _OF_RCCL if is_rccl else (PEER_BYTES, NETWORK_BYTES)
        self._version, self._group = nccl.version, with_peers(group)
        self._graph: CommGraph = nccl.graph(group)
        hosts = list(group.by_host().values())
        self._several = len(hosts) > 1
        self._on_host = max(map(len, hosts))
        near = next((ranks for ranks in hosts if len(ranks) > 1), None)
        self._peer = peer if near and self._direct(near[0], near[1], "host-staged") else 0
        self._network = network if self._several and self._direct(hosts[0][0], hosts[1][0], "staged") else 0
        self._nvlinks = fewest_nvlinks(group) if self._on_host > 1 else 0
        self._sending = 1 << (self._graph.comm_channels - 1).bit_length()
        self._is_eager = is_rccl or not has(nccl.version, "lazy")
        of_all = self._is_eager and has(nccl.version, "nvls_tree")
        has_nvls = self._graph.nvls_channels and has(nccl.version, "nvls") and nccl.nvls
        self._nvls = (self._graph.comm_channels if of_all else nvls_channels(self._graph)) if has_nvls else 0

    def _direct(self, a: int, b: int, staged: str) -> bool:
        ranks = self._group.ranks
        return not self._group.router.route(ranks[a], ranks[b]).transport.endswith(staged)

    def collective_bytes(self, algorithms: Collection[str]) -> float:
        """Return the bytes of channels, and of their connections for collectives by *algorithms*."""
        n, hosts, channels = self._group.n_ranks, self._graph.n_nodes, self._graph.comm_channels
        turn = 1 / self._on_host  # of each channel's connections to other machines
        inside = self._peer * ((1 - turn) if self._several else 1)
        edges = 2 * (hosts - 1) / hosts  # of a machine, on average over the nodes of two trees
        found = 0.0
        if not self.is_rccl and has(self._version, "cumem"):
            found += _PAGE * (3 * max(self._sending, channels, self._nvls) + self._nvls)
        if "ring" in algorithms:
            found += channels * (inside + turn * self._network)
        if "tree" in algorithms and (n > 2 or "ring" not in algorithms):  # two ranks are joined both ways by a ring
            found += channels * (inside + turn * edges * self._network)
        if "pat" in algorithms:
            found += channels * 2 * (n - 1).bit_length() * (self._network or self._peer)
        if "nvls" in algorithms or "nvls_tree" in algorithms:
            each = _SIMPLE + _PAGE if self._is_eager else _STEPS * t.NVLS_CHUNK
            found += _pages(2 * self._nvls * each * self._graph.nvls_channels)
        if "nvls_tree" in algorithms and self._several:
            found += self._nvls * edges * self._network
        return found

    def peer_bytes(self, n_peers: int) -> float:
        """Return the bytes of connections for sends to *n_peers* ranks, those of the same machine first."""
        channels = min(self._sending, 1 << (max(2, 2 * self._nvlinks) - 1).bit_length())
        if self._several:
            channels = min(channels, self._graph.channels_to_a_peer)
        return min(n_peers, self._on_host - 1) * channels * self._peer

    def shared_bytes(self, n_peers: int) -> float:
        """Return the bytes of buffers that all sends to *n_peers* ranks over a network share."""
        chunk = _NVLINK_CHUNK if self._nvlinks and not self._several else _NET_CHUNK
        at_once = 2 if n_peers and self._network else int(has(self._version, "pxn") and self._is_eager)
        return at_once * self._sending * _SHARED_STEPS * chunk


_CHANNELS = 20 // 2
_ON_MACHINE = 8  # NUM_MAX_NVL_PEERS
_BESIDES = 8 + 128 * 8 + 128 * 4 + 128 * 4  # of a token: where it comes from, experts, weights, scales
_CONTROL = 16
_WORKSPACE = 32 * 2**20
_NVSHMEM = 512 * 2**20
# The tokens of a ring on a machine, and of one over a network (a multiple of those that are sent at once), by ranks.
_RANKS = (8, 16, 24, 32, 64, 128, 144)
_TOKENS = ((256, 0), (288, 140), (288, 128), (288, 128), (288, 140), (560, 132), (720, 132))


def deep_ep_bytes(n_ranks: int, hidden: int) -> float:
    """Return the bytes on each of *n_ranks* GPUs that exchange tokens of *hidden* numbers in 16 bits."""
    inside, across = _TOKENS[min(bisect_left(_RANKS, n_ranks), len(_RANKS) - 1)]
    token = 2 * hidden + _BESIDES
    machines, near = max(1, n_ranks // _ON_MACHINE), min(n_ranks, _ON_MACHINE)
    found = _CHANNELS * near * (inside * token + (2 * machines + 3) * 4) + _WORKSPACE
    if n_ranks <= _ON_MACHINE:
        return float(found)
    rings = _CHANNELS * machines * 2 * (across * (token + _CONTROL) + (2 * _ON_MACHINE + 2) * 4)
    return float(found + -(-rings // _NVSHMEM) * _NVSHMEM)
