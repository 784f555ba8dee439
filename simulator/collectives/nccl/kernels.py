"""The plans of NCCL's kernels: ring, tree, NVLS, and point to point (docs/decisions/collectives.md)."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise, permutations, zip_longest

from simulator.collectives.communicator import Equal, Request, Unsuitable
from simulator.collectives.nccl import tables as t
from simulator.collectives.nccl.cost import NcclCosts, Paces, ProtocolCost, Window
from simulator.collectives.nccl.graph import is_amd, relays_of
from simulator.collectives.nccl.graph import way as way_of
from simulator.collectives.schedules import in_order_tree, neighbour_pairs, two_trees
from simulator.collectives.search.rings import FoundRing
from simulator.network.machine import Machine
from simulator.network.route import MovableRoute, Route, route_along
from simulator.plan.flow import PairGroup
from simulator.plan.plan import Flow, PlanBuilder
from simulator.records import replace
from simulator.topology.parts import GpuPart, NicPart

# Stages of NVLS: copy into buffers (but for a rank's own part), reduce or multicast in the switch, copy out.
_NVLS_STAGES = {"all-reduce": 3, "all-gather": 2, "reduce-scatter": 2}
_NONE: Mapping[tuple[int, int], int] = {}


def largest_chunk(*, tree: bool, n_hosts: int, on_efa: bool) -> int:
    """Return the chunk size of NVLS for large buffers, in bytes: compiled into NCCL, or set by the EFA plugin."""
    if on_efa:
        return t.NVLS_CHUNK_EFA
    return t.NVLS_TREE_CHUNK_FAR if tree and n_hosts >= t.NVLS_TREE_FAR_HOSTS else t.NVLS_CHUNK


def rounds_from(size_bytes: float, at_once: int, largest: int, *, tree: bool) -> Sequence[tuple[float, float]]:
    """Return (bytes, rounds) for *size_bytes* and each larger size at which NCCL's chunks grow; the fastest counts."""
    chunk = largest
    found: list[tuple[float, float]] = []
    for rounds, smaller in t.PLANS["nvls"]["tree_chunks" if tree else "chunks"]:
        limit = float(rounds * at_once * chunk)
        if chunk > smaller and size_bytes < limit:
            found.insert(0, (limit, limit / (at_once * chunk)))
            chunk = smaller
    return [(size_bytes, size_bytes / (at_once * chunk)), *found]


class KernelPlanner:
    """Writes a collective's plan into ``builder``; ``n_filled`` is not rounded, as measured times have no step."""

    def __init__(self, builder: PlanBuilder, request: Request, costs: NcclCosts, present: Machine) -> None:
        self.builder, self.request, self.costs = builder, request, costs
        self.n_channels, self.n_filled = 1, 1.0
        self.paces = Paces(present, costs.shared)
        self._hosts = list(request.group.by_host().values())
        self._several = len(self._hosts) > 1
        self._equal = Equal.of(request.group)
        self._gpus = request.group.unlike()
        self._pace = max(costs.pace(node.part) for node in self._gpus)
        beside = request.machine.nodes_of(request.machine.nodes[request.ranks[0]].host) if self._several else ()
        self._nics = [node.part for node in beside if isinstance(node.part, NicPart)]
        self._plugin_s = max((nic.plugin_time for nic in self._nics), default=0.0)
        self._to_switches: dict[int, list[list[MovableRoute]]] = {}  # by GPU of the first equal host

    def ring(self, rings: Sequence[FoundRing], protocol: str, *, log_steps: bool = False) -> None:
        """Plan a collective along *rings*; *log_steps* for PAT, which takes lg n steps instead of n - 1."""
        n, size, collective = self.request.n_ranks, self.request.size_bytes, self.request.collective
        root = self.request.ranks[self.request.root]
        cost = self.costs.chunked(protocol, self._gpus)
        laps = 2 if collective == "all-reduce" else 1
        rounds = laps * (n - 1)
        net_hops = laps * (len(self._hosts) - 1)
        hops = rounds - net_hops
        if log_steps and self._several:
            net_hops, hops = (len(self._hosts) - 1).bit_length(), 0
        rooted = collective in ("broadcast", "reduce")
        if not rooted:
            self._own_part()
            if protocol == "Simple" and size > 0:
                self.paces.windows = [Window(first=min(1.0, self.n_channels * n * t.RING_CHUNK / size) / rounds)]
        total = sum(ring.bandwidth_Bps for ring in rings)
        for i, ring in enumerate(rings):
            part, share = size * ring.bandwidth_Bps / total, ring.bandwidth_Bps / total
            routes: Sequence[Route] = ring.routes
            ways: Sequence[PairGroup | None] = [None] * len(routes)
            if self._equal and not rooted:
                on_first = len(self._hosts[0])
                routes, ways = routes[:on_first], [self._equal.within] * (on_first - 1) + [self._equal.onward]
            piped = rooted or self._several
            moved = part if rooted else part * rounds / n if piped else part / n
            latency_s = self._way_s(routes, hops, net_hops, cost)
            if collective == "broadcast":  # no hop leads into the root, or out of it
                routes = [route for route in routes if route.dst != root]
            elif collective == "reduce":
                routes = [route for route in routes if route.src != root]
            late_s = [max(0.0, latency_s - each.latency_s) if piped else cost.hop_s * self._pace for each in routes]
            each = zip(routes, late_s, ways, strict=False)
            flows = [self._flow(route, moved, cost, share, extra_s, way) for route, extra_s, way in each]
            self.paces.channels.append((f"channel {i}", flows, 1 if piped else rounds, cost))
            self.builder.rings.append(self.request.group.nodes_along(ring.order))
        self._submit(self._name("PAT" if log_steps else "RING", protocol), cost.base_s)

    def tree(self, rings: Sequence[FoundRing], protocol: str) -> None:
        """Plan an all-reduce along chains inside machines and a double binary tree between them."""
        cost = self.costs.chunked(protocol, self._gpus)
        relays = _NONE if self._several else relays_of(self.request.machine, rings)
        total = sum(ring.bandwidth_Bps for ring in rings)
        for i, ring in enumerate(rings):
            fraction = ring.bandwidth_Bps / total
            part = self.request.size_bytes * fraction
            runs = groupby(ring.order, key=lambda rank: self.request.machine.nodes[self.request.ranks[rank]].host)
            chains = [ring.order[: len(self._hosts[0])]] if self._equal else [tuple(run) for _, run in runs]
            edges = [(b, a, part) for chain in chains for a, b in pairwise(chain)]
            hops = 2 * (max(map(len, chains)) - 1)
            heads = [chain[0] for chain in chains] if self._several else []
            net_hops = 2 * in_order_tree(len(self._hosts)).depth if self._several else 0
            flows = self._both_ways(edges, heads, part / 2, cost, hops, net_hops, fraction, relays)
            self.paces.channels.append((f"channel {i}", flows, 1, cost))
        self._submit(self._name("TREE", protocol), cost.base_s)

    def nvls(self, heads: int) -> None:
        """Plan NVLS, in which *heads* GPUs of a machine own parts of the sum, which two trees join across machines."""
        cost = self.costs.nvls(self._gpus, several=self._several)
        collective, size, n = self.request.collective, self.request.size_bytes, self.request.n_ranks
        sent = size / n if collective == "all-gather" else size
        received = size / n if collective == "reduce-scatter" else size
        stages, simple = _NVLS_STAGES[collective], self.costs.protocols["Simple"]
        round_s = simple.hop_s + heads * cost.head_s
        nodes: list[tuple[int, PairGroup | None]] = [(node, None) for node in self.request.ranks]
        if self._equal:  # those of one machine per role in the trees
            own = [self.request.ranks[rank] for rank in self._hosts[0]]
            nodes = [(self._equal.node(node, at.pairs[0][0]), at) for node in own for at in self._equal.inside]
        flows = []
        for node, at in nodes:
            ways = self._up_and_down(node)
            for up, down in ways:
                for route, n_bytes in ((up, sent / len(ways)), (down, received / len(ways))):
                    flows.append(Flow(route, n_bytes, latency_s=cost.hop_s * self._pace, at=at))
        self.paces.channels.append(("nvls", flows, 1, cost))
        if size > 0:
            on_efa = any(nic.network == "efa" for nic in self._nics)
            largest = largest_chunk(tree=self._several, n_hosts=len(self._hosts), on_efa=on_efa)
            self.paces.windows = [
                Window(up_to / size, (stages - 1) / max(1.0, rounds), rounds * round_s * self._pace)
                for up_to, rounds in rounds_from(size, self.n_channels * heads, largest, tree=self._several)
            ]
        if self._several:
            self.paces.net_stages = 2 * in_order_tree(len(self._hosts)).depth
            near = [self._heads(ranks)[:heads] for ranks in (self._hosts[:1] if self._equal else self._hosts)]
            for i, firsts in enumerate(zip(*near, strict=True)):
                edges = self._both_ways([], firsts, size / heads / 2, simple, 1, self.paces.net_stages, 1 / heads)
                self.paces.channels.append((f"tree {i}", edges, 1, simple))
        self._submit(self._name("NVLS", "Simple"), cost.base_s + stages * round_s)

    def direct(self, protocol: str) -> None:
        """Plan exchanges of each GPU with all others at once (RCCL), which start as LL does and fill no pipeline."""
        costs, n = self.costs, self.request.n_ranks
        of = costs.protocols[protocol]
        base_s, share = costs.protocols["LL"].base_s, costs.shared.rccl_direct_share
        cost = ProtocolCost(base_s, hop_s=of.hop_s, share=share, wire=of.wire)
        rounds = 2 if self.request.collective == "all-reduce" else 1
        every = self._pair_by_pair(permutations(range(n), 2), self.request.size_bytes / n)
        flows = [replace(flow, overhead=cost.wire, latency_s=cost.hop_s * self._pace) for flow in every]
        self.paces.channels.append(("direct", flows, rounds, cost))
        self._submit(self._name("DIRECT", protocol), cost.base_s)

    def point_to_point(self, *, one_channel: bool) -> None:
        """Plan all-to-all or send-recv, with the flows of all pairs at once, those to other nodes in *one_channel*."""
        cost, n = self.costs.protocols["P2P"], self.request.n_ranks
        if self.request.collective == "all-to-all":
            from simulator.collectives.scheduled import between_equal

            n_bytes, peers = self.request.size_bytes / n, n - 1
            flows = self._pair_by_pair(permutations(range(n), 2), n_bytes)
            if self._equal:
                flows = between_equal(self.request, self._equal, n_bytes)
            self._own_part()
            size_bytes = self.request.size_bytes
            first = min(1.0, t.P2P_CHANNELS * t.P2P_CHUNK / size_bytes) if size_bytes > 0 else 1.0
            self.paces.windows = [Window(first=first)]
        else:
            flows, peers = self._pair_by_pair(self.request.pairs or neighbour_pairs(n), self.request.size_bytes), 1
        each_Bps = t.P2P_CHANNELS * cost.channel_Bps / (n if self.request.collective == "all-to-all" else 1)
        far_Bps = cost.channel_Bps if one_channel else math.inf
        late = []
        for flow in flows:
            over_network = flow.route.path_class == "net"
            latency_s = cost.hop_s * self._pace * peers + over_network * (cost.net_hop_s + self._plugin_s)
            late.append(replace(flow, latency_s=latency_s, cap_Bps=far_Bps if over_network else each_Bps))
        self.paces.channels.append(("p2p", late, 1, cost))
        self._submit("ncclDevKernel_SendRecv", cost.base_s, peers)

    def _pair_by_pair(self, pairs: Iterable[tuple[int, int]], n_bytes: float) -> Iterator[Flow]:
        ranks = self.request.ranks
        return (Flow(self.request.router.route(ranks[a], ranks[b]), n_bytes) for a, b in pairs)

    def _submit(self, kernel: str, base_s: float, n_peers: int = 0) -> None:
        driven = self.request.gpus_per_process
        self.builder.facts["gpus_per_process"] = driven
        first = self.request.machine.nodes[self.request.ranks[0]]
        launch_s = driven * (self.costs.shared.launch_s + n_peers * self.costs.shared.peer_launch_s)
        self.builder.work("launch", f"host of {first.name}", launch_s, stream="host")
        base_s = base_s * self._pace + (self.costs.shared.rccl_base_s if is_amd(first.part) else 0.0)
        began = self.builder.work(kernel, first.name, base_s, stream="kernel")
        self.paces.submit(self.builder, self.request.collective, [began])

    def _own_part(self) -> None:
        """Record the time of the rank's own part, 1/n of the data, which passes through its memory but no link."""
        part = self.request.machine.nodes[self.request.ranks[0]].part
        bandwidth_Bps = part.memory_bandwidth if isinstance(part, GpuPart) else None
        self.paces.own_s = self.request.size_bytes / self.request.n_ranks / bandwidth_Bps if bandwidth_Bps else 0.0

    def _name(self, algorithm: str, protocol: str) -> str:
        what = "".join(word.capitalize() for word in self.request.collective.split("-"))
        return f"ncclDevKernel_{what}_Sum_f32_{algorithm}_{protocol.upper()}"

    def _flow(
        self, route: Route, n_bytes: float, cost: ProtocolCost, fraction: float, extra_s: float, at: PairGroup | None
    ) -> Flow:
        """Return a flow at the largest rate of a *fraction* of the channels in use, *extra_s* later than its route."""
        rate_Bps = cost.channel_Bps * cost.wire
        if route.transport == "host-staged":
            rate_Bps = min(rate_Bps, self.costs.shared.staged_channel_Bps)
        cap_Bps = self.n_filled * fraction * rate_Bps
        return Flow(route, n_bytes, overhead=cost.wire, cap_Bps=cap_Bps, latency_s=extra_s, at=at)

    def _way_s(self, routes: Sequence[Route], hops: int, net_hops: int, cost: ProtocolCost) -> float:
        """Return the time in seconds of the first chunk over the given numbers of hops, including route latencies."""
        inside = max((r.latency_s for r in routes if r.path_class != "net"), default=0.0)
        between = max((r.latency_s for r in routes if r.path_class == "net"), default=0.0)
        return hops * (cost.hop_s * self._pace + inside) + net_hops * (cost.net_hop_s + self._plugin_s + between)

    def _heads(self, ranks: list[int]) -> list[int]:
        """Return a machine's *ranks*: one nearest to each NIC, then a second one, ..., then those near none."""
        rank_at = {self.request.ranks[rank]: rank for rank in ranks}
        owners = self.request.router.owners(rank_at).values()
        turns = [rank_at[node] for turn in zip_longest(*owners) for node in turn if node is not None]
        return list(dict.fromkeys([*turns, *ranks]))

    def _up_and_down(self, gpu: int) -> list[list[Route]]:
        """Return the routes to and from each NVLink switch of a GPU; raises Unsuitable without any."""
        machine = self.request.machine
        run, host, own = machine.locate(gpu)
        first = run.node + own
        if first not in self._to_switches:
            links = [link for link in machine.outgoing[first] if machine.nodes[link.dst].kind == "nvlink-switch"]
            if not links:
                raise Unsuitable("NVLS needs an NVLink switch")
            self._to_switches[first] = [
                [MovableRoute(machine, route_along(machine, [way], "nvl", "nvls")) for way in (up, machine.reverse(up))]
                for up in links
            ]
        return [[way.at(host) for way in ways] for ways in self._to_switches[first]]

    def _both_ways(
        self,
        edges: Sequence[tuple[int, int, float]],
        heads: Sequence[int],
        half_bytes: float,
        cost: ProtocolCost,
        hops: int,
        net_hops: int,
        fraction: float,
        relays: Mapping[tuple[int, int], int] = _NONE,
    ) -> list[Flow]:
        """Return flows both ways on *edges*, and trees of *half_bytes* between *heads*; *relays* pass flows on."""
        ranks, router = self.request.ranks, self.request.router
        ends = [(ranks[src], ranks[dst], n_bytes) for a, b, n_bytes in edges for src, dst in ((a, b), (b, a))]
        ways: list[tuple[Route, PairGroup | None, float]] = []
        if self._equal:
            moved = [(end, way, n_bytes) for *end, n_bytes in ends for way in self._equal.inside]
            moved += [([ranks[heads[0]]] * 2, way, half_bytes) for way in self._equal.between if heads]
            for end, way, n_bytes in moved:
                a, b = (self._equal.node(node, host) for node, host in zip(end, way.pairs[0], strict=True))
                ways.append((router.route(a, b), way, n_bytes))
        else:
            if len(heads) > 1:
                between = [(heads[c], heads[p]) for tree in two_trees(len(heads)) for c, p in tree.edges()]
                ends += [(ranks[src], ranks[dst], half_bytes) for c, p in between for src, dst in ((c, p), (p, c))]
            ways = [(way_of(router, relays, src, dst), None, n_bytes) for src, dst, n_bytes in ends]
        latency_s = self._way_s([route for route, _, _ in ways], hops, net_hops, cost)
        late = [(*way, max(0.0, latency_s - way[0].latency_s)) for way in ways]
        return [self._flow(route, n_bytes, cost, fraction, late_s, at) for route, at, n_bytes, late_s in late]
