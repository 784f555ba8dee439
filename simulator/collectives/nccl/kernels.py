"""The plans of NCCL's kernels: ring, tree, NVLS, and point to point.

Inside one machine, a ring runs round by round.  Over several machines, and along trees, data move in small chunks: all
hops work at once, preceded by the pipeline fill, the latency of the first chunk.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, permutations

from simulator.collectives.algorithms.binary_tree import in_order_tree, two_trees
from simulator.collectives.nccl import tables as t
from simulator.collectives.nccl.cost import NcclCosts, Paces, ProtocolCost, Window
from simulator.collectives.nccl.graph import relays_of
from simulator.collectives.nccl.graph import way as way_of
from simulator.collectives.nccl.rccl import is_amd
from simulator.collectives.nccl.ways import Ways, largest_chunk, rounds_from
from simulator.collectives.request import Request
from simulator.collectives.search.rings import FoundRing
from simulator.network.machine import Machine
from simulator.network.route import Route
from simulator.plan.alike import PairGroup
from simulator.plan.plan import Flow, PlanBuilder
from simulator.records import replace
from simulator.topology.parts import GpuPart, NicPart

# Stages of NVLS: copy into buffers, reduce or multicast (or both) in the switch, copy out.  A rank's own part needs no
# buffer.
_NVLS_STAGES = {"all-reduce": 3, "all-gather": 2, "reduce-scatter": 2}
_NONE: Mapping[tuple[int, int], int] = {}


class KernelPlanner:
    """Writes the plan of one collective into ``builder``.

    ``n_channels`` is the number of thread blocks that move data.  ``n_filled`` is the number of channels that the
    buffer fills, not rounded, because measured times have no step where NCCL adds a channel.  *present*: the request's
    machine with its slow links and neighbours.
    """

    def __init__(self, builder: PlanBuilder, request: Request, costs: NcclCosts, present: Machine) -> None:
        self.builder = builder
        self.request = request
        self.costs = costs
        self.n_channels = 1
        self.n_filled = 1.0
        self._ways = Ways(request)
        self.hosts = self._ways.hosts
        self.paces = Paces(present, costs.shared)
        self._equal = self._ways.equal
        self._pace = max(costs.pace(node.part) for node in request.group.unlike())
        self._nics = [
            node.part
            for node in request.machine.nodes_of(request.machine.nodes[request.ranks[0]].host)
            if isinstance(node.part, NicPart) and len(self.hosts) > 1
        ]
        self._plugin_s = max((nic.plugin_time for nic in self._nics), default=0.0)

    # -- kernels -------------------------------------------------------------------

    def ring(self, rings: Sequence[FoundRing], protocol: str, *, log_steps: bool = False) -> None:
        """Plan a collective along *rings*; *log_steps* for PAT, which takes lg n steps instead of n - 1."""
        n, size, collective = self.request.n_ranks, self.request.size_bytes, self.request.collective
        cost = self.costs.chunked(protocol, self.request.group.unlike())
        after = self._begin(self._name("PAT" if log_steps else "RING", protocol), cost.base_s)
        rounds = 2 * (n - 1) if collective == "all-reduce" else n - 1
        rooted = collective in ("broadcast", "reduce")
        hops, net_hops = rounds, 0
        if not rooted:
            self._own_part()
            if protocol == "Simple" and size > 0:
                self.paces.windows = [Window(first=min(1.0, self.n_channels * n * t.RING_CHUNK / size) / rounds)]
        if len(self.hosts) > 1:
            laps = 2 if collective == "all-reduce" else 1
            net_hops = laps * (len(self.hosts) - 1)
            hops = rounds - net_hops
            if log_steps:
                net_hops, hops = (len(self.hosts) - 1).bit_length(), 0
        total = sum(ring.bandwidth_Bps for ring in rings)
        for i, ring in enumerate(rings):
            part = size * ring.bandwidth_Bps / total
            share = ring.bandwidth_Bps / total
            if rooted or len(self.hosts) > 1:
                moved = part if rooted else part * rounds / n
                ways = self._ways.round(ring, rooted=rooted)
                latency = self._way_s([route for route, _ in ways], hops, net_hops, cost)
                if rooted:
                    ways = [(route, None) for route in self._ways.open(ring)]
                flows = [
                    _piped(route, moved, cost, self._channel_rate(cost, share, route), latency, at)
                    for route, at in ways
                ]
                repeat = 1
            else:
                flows = [
                    Flow(
                        route,
                        part / n,
                        overhead=cost.wire,
                        cap_Bps=self._channel_rate(cost, share, route),
                        latency_s=cost.hop_s * self._pace,
                    )
                    for route in ring.routes
                ]
                repeat = rounds
            self.paces.channels.append((f"channel {i}", flows, repeat, cost))
            self.builder.rings.append(self.request.group.nodes_along(ring.order))
        self.paces.submit(self.builder, self.request.collective, after)

    def tree(self, rings: Sequence[FoundRing], protocol: str) -> None:
        """Plan an all-reduce along chains inside machines and a double binary tree between them."""
        cost = self.costs.chunked(protocol, self.request.group.unlike())
        relays = relays_of(self.request.machine, rings) if len(self.hosts) == 1 else _NONE
        after = self._begin(self._name("TREE", protocol), cost.base_s)
        total = sum(ring.bandwidth_Bps for ring in rings)
        for i, ring in enumerate(rings):
            fraction = ring.bandwidth_Bps / total
            part = self.request.size_bytes * fraction
            chains = self._ways.chains(ring)
            edges = [(b, a, part) for chain in chains for a, b in pairwise(chain)]
            hops, net_hops = 2 * (max(len(chain) for chain in chains) - 1), 0
            heads: list[int] = []
            if len(self.hosts) > 1:
                heads = [chain[0] for chain in chains]
                net_hops = 2 * in_order_tree(len(self.hosts)).depth
            flows = self._both_ways(edges, heads, part / 2, cost, hops, net_hops, fraction, relays)
            self.paces.channels.append((f"channel {i}", flows, 1, cost))
        self.paces.submit(self.builder, self.request.collective, after)

    def nvls(self, heads: int) -> None:
        """Plan NVLS: the switch reduces and multicasts; each GPU sends its data once and receives the result once.

        *heads*: GPUs of a machine that each own a part of the sum, which passes between machines through a double
        binary tree.
        """
        cost = self.costs.nvls(self.request.group.unlike(), several=len(self.hosts) > 1)
        collective, size = self.request.collective, self.request.size_bytes
        n = self.request.n_ranks
        sent = size / n if collective == "all-gather" else size
        received = size / n if collective == "reduce-scatter" else size
        stages, simple = _NVLS_STAGES[collective], self.costs.protocols["Simple"]
        round_s = simple.hop_s + heads * cost.head_s
        after = self._begin(self._name("NVLS", "Simple"), cost.base_s + stages * round_s)
        flows = []
        for node, at in self._ways.inside():
            ways = self._ways.to_switches(node)
            for up, down in ways:
                for route, n_bytes in ((up, sent / len(ways)), (down, received / len(ways))):
                    flows.append(Flow(route, n_bytes, latency_s=cost.hop_s * self._pace, at=at))
        self.paces.channels.append(("nvls", flows, 1, cost))
        if size > 0:
            self.paces.windows = [
                Window(up_to / size, (stages - 1) / max(1.0, rounds), rounds * round_s * self._pace)
                for up_to, rounds in self._nvls_rounds(heads)
            ]
        if len(self.hosts) > 1:
            self.paces.net_stages = 2 * in_order_tree(len(self.hosts)).depth
            near = [self._ways.heads(ranks)[:heads] for ranks in (self.hosts[:1] if self._equal else self.hosts)]
            for i, own in enumerate(zip(*near, strict=True)):
                edges = self._both_ways([], own, size / heads / 2, simple, 1, self.paces.net_stages, 1 / heads)
                self.paces.channels.append((f"tree {i}", edges, 1, simple))
        self.paces.submit(self.builder, self.request.collective, after)

    def direct(self, protocol: str) -> None:
        """Plan an all-reduce or all-gather in which each GPU exchanges with all others at once, part by part (RCCL).

        The kernel starts as LL's does; no pipeline has to fill.
        """
        costs, n = self.costs, self.request.n_ranks
        of = costs.protocols[protocol]
        cost = ProtocolCost(
            costs.protocols["LL"].base_s, hop_s=of.hop_s, share=costs.shared.rccl_direct_share, wire=of.wire
        )
        after = self._begin(self._name("DIRECT", protocol), cost.base_s)
        rounds = 2 if self.request.collective == "all-reduce" else 1
        flows = [
            replace(flow, overhead=cost.wire, latency_s=cost.hop_s * self._pace)
            for flow in self._pair_by_pair(permutations(range(n), 2), self.request.size_bytes / n)
        ]
        self.paces.channels.append(("direct", flows, rounds, cost))
        self.paces.submit(self.builder, self.request.collective, after)

    def point_to_point(self, *, one_channel: bool) -> None:
        """Plan all-to-all or send-recv, with the flows of all pairs at once, those to other nodes in *one_channel*."""
        cost, n = self.costs.protocols["P2P"], self.request.n_ranks
        if self.request.collective == "all-to-all":
            from simulator.collectives.sharded import between_equal

            n_bytes, peers = self.request.size_bytes / n, n - 1
            flows = (
                between_equal(self.request, self._equal, n_bytes)
                if self._equal
                else self._pair_by_pair(permutations(range(n), 2), n_bytes)
            )
            self._own_part()
            size_bytes = self.request.size_bytes
            first = min(1.0, t.P2P_CHANNELS * t.P2P_CHUNK / size_bytes) if size_bytes > 0 else 1.0
            self.paces.windows = [Window(first=first)]
        else:
            from simulator.collectives.algorithms.direct import neighbour_pairs

            flows, peers = self._pair_by_pair(self.request.pairs or neighbour_pairs(n), self.request.size_bytes), 1
        after = self._begin("ncclDevKernel_SendRecv", cost.base_s, peers)
        each_Bps = t.P2P_CHANNELS * cost.channel_Bps / (n if self.request.collective == "all-to-all" else 1)
        far_Bps = cost.channel_Bps if one_channel else math.inf
        late = []
        for flow in flows:
            over_network = flow.route.path_class == "net"
            latency_s = cost.hop_s * self._pace * peers + over_network * (cost.net_hop_s + self._plugin_s)
            late.append(replace(flow, latency_s=latency_s, cap_Bps=far_Bps if over_network else each_Bps))
        self.paces.channels.append(("p2p", late, 1, cost))
        self.paces.submit(self.builder, self.request.collective, after)

    def _pair_by_pair(self, pairs: Iterable[tuple[int, int]], n_bytes: float) -> Iterator[Flow]:
        """Yield a flow of *n_bytes* for each (source, target) of *pairs* of ranks."""
        ranks = self.request.ranks
        return (Flow(self.request.router.route(ranks[a], ranks[b]), n_bytes) for a, b in pairs)

    def _nvls_rounds(self, heads: int) -> Sequence[tuple[float, float]]:
        """Return (bytes, rounds of chunks), for the whole buffer first; see :func:`rounds_from`."""
        tree = len(self.hosts) > 1
        on_efa = any(nic.network == "efa" for nic in self._nics)
        largest = largest_chunk(tree=tree, n_hosts=len(self.hosts), on_efa=on_efa)
        return rounds_from(self.request.size_bytes, self.n_channels * heads, largest, tree=tree)

    # -- parts of kernels ----------------------------------------------------------

    def _begin(self, kernel: str, base_s: float, n_peers: int = 0) -> list[int]:
        """Add the launches, which run in parallel, and the kernel's start; return the tasks that transfers wait for."""
        driven = self.request.gpus_per_process
        self.builder.facts["gpus_per_process"] = driven
        first = self.request.machine.nodes[self.request.ranks[0]]
        launch_s = driven * (self.costs.shared.launch_s + n_peers * self.costs.shared.peer_launch_s)
        self.builder.work("launch", f"host of {first.name}", launch_s, stream="host")
        base_s = base_s * self._pace + (self.costs.shared.rccl_base_s if is_amd(first.part) else 0.0)
        return [self.builder.work(kernel, first.name, base_s, stream="kernel")]

    def _own_part(self) -> None:
        """Record the time of the rank's own part, 1/n of the data, which passes through its memory but no link."""
        part = self.request.machine.nodes[self.request.ranks[0]].part
        bandwidth_Bps = part.memory_bandwidth if isinstance(part, GpuPart) else None
        self.paces.own_s = self.request.size_bytes / self.request.n_ranks / bandwidth_Bps if bandwidth_Bps else 0.0

    def _name(self, algorithm: str, protocol: str) -> str:
        """Return the kernel's name as it appears in NCCL's traces."""
        what = "".join(word.capitalize() for word in self.request.collective.split("-"))
        return f"ncclDevKernel_{what}_Sum_f32_{algorithm}_{protocol.upper()}"

    def _channel_rate(self, cost: ProtocolCost, fraction: float, route: Route) -> float:
        """Return the largest rate on the links of *route*, in B/s, of a *fraction* of the channels in use."""
        rate_Bps = cost.channel_Bps * cost.wire
        if route.transport == "host-staged":
            rate_Bps = min(rate_Bps, self.costs.shared.staged_channel_Bps)
        return self.n_filled * fraction * rate_Bps

    def _way_s(self, routes: Sequence[Route], hops: int, net_hops: int, cost: ProtocolCost) -> float:
        """Return the time in seconds of the first chunk over the given numbers of hops, including route latencies."""
        inside = max((r.latency_s for r in routes if r.path_class != "net"), default=0.0)
        between = max((r.latency_s for r in routes if r.path_class == "net"), default=0.0)
        return hops * (cost.hop_s * self._pace + inside) + net_hops * (cost.net_hop_s + self._plugin_s + between)

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
        """Return flows up and down *edges* (child, parent, bytes) inside machines and between machines, all at once.

        *heads*: one rank per machine; between them, two binary trees carry *half_bytes* each.
        *relays*: the GPU through which a pair's flow passes.

        If machines are equal, edges and heads are those of the first machine.
        """
        ranks, router = self.request.ranks, self.request.router
        ends = [(src, dst, n_bytes) for a, b, n_bytes in edges for src, dst in ((a, b), (b, a))]
        if self._equal:
            places = [ranks[src] for src, _, _ in ends], [ranks[dst] for _, dst, _ in ends]
            ways: list[tuple[Route, PairGroup | None, float]] = [
                (router.route(self._equal.node(src, host), self._equal.node(dst, host)), way, n_bytes)
                for src, dst, (_, _, n_bytes) in zip(*places, ends, strict=True)
                for way in self._equal.inside
                for host in way.pairs[0][:1]
            ]
            for way in self._equal.between if heads else ():
                a, b = (self._equal.node(ranks[heads[0]], host) for host in way.pairs[0])
                ways.append((router.route(a, b), way, half_bytes))
        else:
            if len(heads) > 1:
                between = [(heads[c], heads[p]) for tree in two_trees(len(heads)) for c, p in tree.edges()]
                ends += [(src, dst, half_bytes) for c, p in between for src, dst in ((c, p), (p, c))]
            ways = [(way_of(router, relays, ranks[src], ranks[dst]), None, n_bytes) for src, dst, n_bytes in ends]
        latency = self._way_s([route for route, _, _ in ways], hops, net_hops, cost)
        return [
            _piped(route, n_bytes, cost, self._channel_rate(cost, fraction, route), latency, at)
            for route, at, n_bytes in ways
        ]


def _piped(
    route: Route, n_bytes: float, cost: ProtocolCost, cap_Bps: float, latency_s: float, at: PairGroup | None
) -> Flow:
    """Return a flow whose last byte arrives *latency_s* after it was sent, including the route's own latency."""
    extra = max(0.0, latency_s - route.latency_s)
    return Flow(route, n_bytes, overhead=cost.wire, cap_Bps=cap_Bps, latency_s=extra, at=at)
