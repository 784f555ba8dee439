"""The plans of NCCL's kernels: ring, tree, NVLS, point to point, and trees packed into NVLink.

Inside one machine a ring goes round by round.  Over several machines, and along trees, data
moves in small chunks: all hops work at once, and ahead of that lies the way of the first
chunk, whose latency is paid once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from simulator.network.route import Route, route_along
from simulator.plan.plan import Flow, PlanBuilder
from simulator.strategies.algorithms.double_tree import two_trees
from simulator.strategies.base import Request, Unsuitable
from simulator.strategies.nccl.cost import Costs, ProtocolCost
from simulator.strategies.search.rings import FoundRing
from simulator.strategies.search.trees import FoundTree

__all__ = ["NETWORK_LINKS", "KernelPlanner"]

NETWORK_LINKS = ("ethernet", "infiniband", "efa", "omnipath")


class KernelPlanner:
    """Writes the plan of one collective into ``builder``.

    ``driven`` is how many GPUs one host thread launches for, ``n_channels`` how many blocks of
    threads move data, ``plugin_s`` what the network's plugin adds to each hop between machines.
    """

    def __init__(
        self, builder: PlanBuilder, request: Request, costs: Costs, *, driven: int, n_channels: int, plugin_s: float
    ) -> None:
        self.builder = builder
        self.request = request
        self.costs = costs
        self.driven = driven
        self.n_channels = n_channels
        self.plugin_s = plugin_s
        self.hosts = list(request.by_host().values())
        self._fans_out = False
        self._channels: list[tuple[str, list[Flow], int]] = []  # stream, flows, rounds

    # -- kernels -------------------------------------------------------------------

    def ring(self, rings: Sequence[FoundRing], protocol: str, *, log_steps: bool = False) -> None:
        """All collectives along rings; *log_steps* for PAT, which takes lg n steps instead of n - 1."""
        n, size, collective = self.request.n_ranks, self.request.size_bytes, self.request.collective
        cost = self.costs.protocols[protocol]
        after = self._begin(self._name("PAT" if log_steps else "RING", protocol), cost.base_s)
        rounds = 2 * (n - 1) if collective == "all-reduce" else n - 1
        rooted = collective in ("broadcast", "reduce")
        hops, net_hops = rounds, 0
        if len(self.hosts) > 1:
            laps = 2 if collective == "all-reduce" else 1
            net_hops = laps * (len(self.hosts) - 1)
            hops = rounds - net_hops
            if log_steps:
                net_hops, hops = (len(self.hosts) - 1).bit_length(), 0
        total = sum(ring.bandwidth_Bps for ring in rings)
        for i, ring in enumerate(rings):
            part = size * ring.bandwidth_Bps / total
            cap = self._protocol_rate(cost, ring.bandwidth_Bps, part / size)
            if rooted or len(self.hosts) > 1:
                moved = part if rooted else part * rounds / n
                latency = self._way_s(ring.routes, hops, net_hops, cost)
                flows = [_piped(r, moved, cost, cap, latency) for r in (self._open(ring) if rooted else ring.routes)]
                repeat = 1
            else:
                flows = [Flow(r, part / n, overhead=cost.wire, cap_Bps=cap, latency_s=cost.hop_s) for r in ring.routes]
                repeat = rounds
            self._channels.append((f"channel {i}", flows, repeat))
            self.builder.rings.append(tuple(self.request.ranks[r] for r in ring.order))
        self._submit(after)
        self._record(protocol, hops, net_hops, size if rooted else size * rounds / n)

    def tree(self, rings: Sequence[FoundRing], protocol: str) -> None:
        """Chains inside the machines, a double binary tree between them."""
        self._fans_out = True
        cost = self.costs.protocols[protocol]
        after = self._begin(self._name("TREE", protocol), cost.base_s)
        total = sum(ring.bandwidth_Bps for ring in rings)
        hops = net_hops = 0
        for i, ring in enumerate(rings):
            part = self.request.size_bytes * ring.bandwidth_Bps / total
            chains = self._chains(ring)
            edges = [(b, a, part) for chain in chains for a, b in pairwise(chain)]
            hops, net_hops = 2 * (max(len(chain) for chain in chains) - 1), 0
            if len(chains) > 1:
                between, depth = _between([chain[0] for chain in chains], part)
                edges += between
                net_hops = 2 * depth
            flows = self._both_ways(edges, cost, hops, net_hops, part / self.request.size_bytes)
            self._channels.append((f"channel {i}", flows, 1))
        self._submit(after)
        self._record(protocol, hops, net_hops, self.request.size_bytes)

    def packed_trees(self, trees: Sequence[FoundTree], protocol: str) -> None:
        """Trees over direct GPU links beside each other, each with an equal part."""
        cost = self.costs.protocols[protocol]
        after = self._begin(self._name("TREE", protocol), cost.base_s)
        for i, tree in enumerate(trees):
            part = self.request.size_bytes / len(trees)
            edges = [(b, a, part) for a, b in tree.edges]
            share = 1 / len(trees)
            flows = self._both_ways(edges, cost, 2 * tree.depth, 0, share, alone_Bps=tree.bandwidth_Bps)
            self._channels.append((f"channel {i}", flows, 1))
        self._submit(after)
        self._record(protocol, 2 * max(tree.depth for tree in trees), 0, self.request.size_bytes)

    def nvls(self) -> None:
        """The switch adds and spreads: each GPU sends its data once and receives the result once.

        Between machines each GPU's part of the sum goes through a double binary tree.
        """
        self._fans_out = True
        cost, collective, size = self.costs.protocols["NVLS"], self.request.collective, self.request.size_bytes
        n = len(self.hosts[0])
        sent = size / n if collective == "all-gather" else size
        received = size / n if collective == "reduce-scatter" else size
        after = self._begin(self._name("NVLS", "Simple"), cost.base_s)
        flows = []
        for node in self.request.ranks:
            ways = self._switch_links(node)
            for up, down in ways:
                for route, n_bytes in ((up, sent / len(ways)), (down, received / len(ways))):
                    flows.append(Flow(route, n_bytes, cap_Bps=route.bandwidth_Bps * cost.share, latency_s=cost.hop_s))
        net_hops = 0
        if len(self.hosts) > 1:
            for i in range(n):
                edges, depth = _between([ranks[i] for ranks in self.hosts], size / n)
                net_hops = 2 * depth
                flows += self._both_ways(edges, self.costs.protocols["Simple"], 1, net_hops, 1 / n)
        self._channels.append(("nvls", flows, 1))
        self._submit(after)
        self._record("NVLS", 1, net_hops, size)

    def point_to_point(self) -> None:
        """All-to-all and send-recv: every pair's flow at once."""
        self._fans_out = True
        cost, n = self.costs.protocols["P2P"], self.request.n_ranks
        if self.request.collective == "all-to-all":
            pairs = [(a, b) for a in range(n) for b in range(n) if a != b]
            n_bytes, peers = self.request.size_bytes / n, n - 1
        else:
            pairs = list(self.request.pairs) or [(a, (a + 1) % n) for a in range(n)]
            n_bytes, peers = self.request.size_bytes, 1
        after = self._begin("ncclDevKernel_SendRecv", cost.base_s, peers)
        flows = []
        for a, b in pairs:
            route = self.request.router.route(self.request.ranks[a], self.request.ranks[b])
            latency = cost.net_hop_s + self.plugin_s if route.path_class == "net" else cost.hop_s * peers
            cap = self._protocol_rate(cost, route.bandwidth_Bps, 1.0)
            flows.append(Flow(route, n_bytes, cap_Bps=cap, latency_s=latency))
        self._channels.append(("p2p", flows, 1))
        self._submit(after)
        over_network = any(flow.route.path_class == "net" for flow in flows)
        self._record("P2P", 0 if over_network else peers, int(over_network), n_bytes)

    # -- their parts ---------------------------------------------------------------

    def _begin(self, kernel: str, base_s: float, n_peers: int = 0) -> list[int]:
        """Add the launches, which run beside all else, and the kernel's start; return what transfers wait for."""
        self.builder.facts |= {"gpus_per_process": self.driven, "peers": n_peers}
        first = self.request.machine.nodes[self.request.ranks[0]]
        launch_s = self.driven * (self.costs.launch_s + n_peers * self.costs.peer_launch_s)
        self.builder.work("launch", f"host of {first.name}", launch_s, stream="host")
        return [self.builder.work(kernel, first.name, base_s, stream="kernel")]

    def _record(self, cost: str, hops: int, net_hops: int, moved_bytes: float) -> None:
        """Keep what the time depends on; *moved_bytes* is what a rank sends, over all channels."""
        self.builder.facts |= {
            "cost": cost,
            "hops": hops,
            "network_hops": net_hops,
            "channel_bytes": moved_bytes / self.n_channels,
            "network_use": "fan" if self._fans_out else "ring",
        }

    def _name(self, algorithm: str, protocol: str) -> str:
        """Return the kernel's name as NCCL and the readers of its traces spell it."""
        what = "".join(word.capitalize() for word in self.request.collective.split("-"))
        return f"ncclDevKernel_{what}_Sum_f32_{algorithm}_{protocol.upper()}"

    def _protocol_rate(self, cost: ProtocolCost, alone_Bps: float, part: float) -> float:
        """Return the rate on the wire that the protocol keeps to.

        Its share of *alone_Bps*, the rate of the slowest hop, and what the *part* of the
        channels that works here can move.
        """
        return min(alone_Bps * cost.share, self.n_channels * part * cost.channel_Bps * cost.wire)

    def _submit(self, after: Sequence[int]) -> None:
        """Add the collected channels to the plan, PCIe and network links used at the share that copies reach.

        What all channels send over such a link takes its bytes over that share of its
        bandwidth; each flow keeps to the rate that ends it just then.
        """
        sent: dict[int, float] = {}
        for _, flows, repeat in self._channels:
            for flow in flows:
                for index, carried in flow.route.links:
                    if self._share(index, flow.route) < 1:
                        sent[index] = sent.get(index, 0.0) + flow.wire_bytes * carried * repeat
        links = self.request.machine.links
        for stream, flows, repeat in self._channels:
            capped = []
            for flow in flows:
                shares = [(i, share) for i, _ in flow.route.links if (share := self._share(i, flow.route)) < 1]
                longest_s = max((sent[i] / (links[i].bandwidth_Bps * share) for i, share in shares), default=0.0)
                rate = flow.wire_bytes * repeat / longest_s if longest_s > 0 else float("inf")
                capped.append(replace(flow, cap_Bps=min(flow.cap_Bps, rate)))
            self.builder.transfer(self.request.collective, capped, stream=stream, after=after, repeat=repeat)

    def _share(self, link_index: int, route: Route) -> float:
        kind = self.request.machine.links[link_index].kind
        if kind == "pcie" and route.path_class != "net":
            return self.costs.pcie_share
        if kind in NETWORK_LINKS:
            if route.transport == "network-staged":
                return self.costs.staged_share
            return self.costs.fan_share if self._fans_out else self.costs.network_share
        return 1.0

    def _way_s(self, routes: Sequence[Route], hops: int, net_hops: int, cost: ProtocolCost) -> float:
        """Return how long the first chunk takes over so many hops of either kind, the routes' latency included."""
        inside = max((r.latency_s for r in routes if r.path_class != "net"), default=0.0)
        between = max((r.latency_s for r in routes if r.path_class == "net"), default=0.0)
        return hops * (cost.hop_s + inside) + net_hops * (cost.net_hop_s + self.plugin_s + between)

    def _both_ways(
        self,
        edges: Sequence[tuple[int, int, float]],
        cost: ProtocolCost,
        hops: int,
        net_hops: int,
        part: float,
        alone_Bps: float = float("inf"),
    ) -> list[Flow]:
        """Return flows up and down the edges (child, parent, bytes) of a tree, all at once."""
        ranks, router = self.request.ranks, self.request.router
        ways = [
            (router.route(ranks[src], ranks[dst]), n_bytes) for a, b, n_bytes in edges for src, dst in ((a, b), (b, a))
        ]
        latency = self._way_s([route for route, _ in ways], hops, net_hops, cost)
        return [
            _piped(route, n_bytes, cost, self._protocol_rate(cost, min(route.bandwidth_Bps, alone_Bps), part), latency)
            for route, n_bytes in ways
        ]

    def _open(self, ring: FoundRing) -> list[Route]:
        """Return the hops of a ring but the one that leads into the root (broadcast) or out of it (reduce)."""
        root = self.request.ranks[self.request.root]
        if self.request.collective == "broadcast":
            return [route for route in ring.routes if route.dst != root]
        return [route for route in ring.routes if route.src != root]

    def _chains(self, ring: FoundRing) -> list[list[int]]:
        """Cut a ring into its stretches on one machine."""
        host = [self.request.machine.nodes[self.request.ranks[r]].host for r in ring.order]
        chains: list[list[int]] = []
        for i, rank in enumerate(ring.order):
            if i and host[i] == host[i - 1]:
                chains[-1].append(rank)
            else:
                chains.append([rank])
        return chains

    def _switch_links(self, gpu: int) -> list[tuple[Route, Route]]:
        """Return the ways from a GPU to its NVLink switches and back."""
        machine = self.request.machine
        found = []
        for link in machine.outgoing[gpu]:
            if machine.nodes[link.dst].kind == "nvlink-switch":
                back = machine.links[link.index ^ 1]  # the directions of a wire stand side by side
                found.append((route_along(machine, [link], "nvl", "nvls"), route_along(machine, [back], "nvl", "nvls")))
        if not found:
            raise Unsuitable("NVLS needs an NVLink switch")
        return found


def _between(heads: Sequence[int], n_bytes: float) -> tuple[list[tuple[int, int, float]], int]:
    """Return the edges (child, parent, bytes) of two binary trees over *heads*, half the data each, and their depth."""
    trees = two_trees(len(heads))
    edges = [(heads[c], heads[p], n_bytes / 2) for tree in trees for c, p in enumerate(tree.parent) if p >= 0]
    return edges, trees[0].depth


def _piped(route: Route, n_bytes: float, cost: ProtocolCost, cap_Bps: float, latency_s: float) -> Flow:
    """Return a flow whose last byte arrives *latency_s* after it has left, the route's own latency included."""
    extra = max(0.0, latency_s - route.latency_s)
    return Flow(route, n_bytes, overhead=cost.wire, cap_Bps=cap_Bps, latency_s=extra)
