"""The plans of NCCL's kernels: ring, tree, NVLS, and point to point.

Inside one machine, a ring runs round by round.  Over several machines, and along trees, data move in small chunks: all
hops work at once, preceded by the pipeline fill, the latency of the first chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, permutations
from typing import NamedTuple

from simulator.collectives.algorithms.binary_tree import in_order_tree, two_trees
from simulator.collectives.algorithms.direct import neighbour_pairs
from simulator.collectives.all_pairs import between_equal
from simulator.collectives.nccl import tables as t
from simulator.collectives.nccl.chunks import largest_chunk, rounds_from
from simulator.collectives.nccl.cost import Costs, ProtocolCost
from simulator.collectives.nccl.rings import relays_of
from simulator.collectives.nccl.rings import way as way_of
from simulator.collectives.nccl.ways import Ways
from simulator.collectives.request import Request
from simulator.collectives.search.rings import FoundRing
from simulator.network.machine import Link
from simulator.network.route import Route
from simulator.plan.alike import Way, added
from simulator.plan.plan import Flow, PlanBuilder, crossed
from simulator.topology.parts import GPU_LINKS, NETWORK_LINKS, GpuPart, NicPart
from simulator.units import format_bandwidth

__all__ = ["KernelPlanner"]

_THROUGH_CPU = ("phb", "sys")  # path classes on which one flow does not saturate PCIe
# Stages of NVLS: copy into buffers, reduce or multicast (or both) in the switch, copy out.  A rank's own part needs no
# buffer.
_NVLS_STAGES = {"all-reduce": 3, "all-gather": 2, "reduce-scatter": 2}
_NONE: Mapping[tuple[int, int], int] = {}
_TOLD_BELOW = 0.9  # an achieved share of the link rate below this is reported to the user


class _Window(NamedTuple):
    """A variant of how chunks fill a pipeline.

    ``share``: bytes sent, as a fraction of the buffer.  ``first``: fraction of the bytes in flight before the stages
    overlap.  ``rounds_s``: cost of the rounds of chunks, in seconds.
    """

    share: float = 1.0
    first: float = 0.0
    rounds_s: float = 0.0


class KernelPlanner:
    """Writes the plan of one collective into ``builder``.

    ``n_channels`` is the number of thread blocks that move data.  ``n_filled`` is the number of channels that the
    buffer fills, not rounded, because measured times have no step where NCCL adds a channel.  *tells*: whether a note
    says which link limits it, which it does not know of a machine with slow links or neighbours.
    """

    def __init__(self, builder: PlanBuilder, request: Request, costs: Costs, *, tells: bool = True) -> None:
        self.builder = builder
        self.request = request
        self.costs = costs
        self.tells = tells
        self.n_channels = 1
        self.n_filled = 1.0
        self._ways = Ways(request)
        self.hosts = self._ways.hosts
        self._channels: list[tuple[str, list[Flow], int, ProtocolCost]] = []  # stream, flows, rounds
        self._equal = self._ways.equal
        self._pace = max(costs.pace(node.part) for node in request.group.unlike())
        self._nics = [
            node.part
            for node in request.machine.nodes_of(request.machine.nodes[request.ranks[0]].host)
            if isinstance(node.part, NicPart) and len(self.hosts) > 1
        ]
        self._plugin_s = max((nic.plugin_time for nic in self._nics), default=0.0)
        self._own_s = 0.0  # time for one pass of the rank's own part through its memory
        self._known_shares: dict[tuple[bool, float], dict[str, float]] = {}
        self._windows = [_Window()]  # variants; the fastest one bounds the links
        self._net_stages = 0  # consecutive network hops of the first chunks

    # -- kernels -------------------------------------------------------------------

    def ring(self, rings: Sequence[FoundRing], protocol: str, *, log_steps: bool = False) -> None:
        """Plan a collective along *rings*; *log_steps* for PAT, which takes lg n steps instead of n - 1."""
        n, size, collective = self.request.n_ranks, self.request.size_bytes, self.request.collective
        cost = self.costs.protocols[protocol]
        after = self._begin(self._name("PAT" if log_steps else "RING", protocol), cost.base_s)
        rounds = 2 * (n - 1) if collective == "all-reduce" else n - 1
        rooted = collective in ("broadcast", "reduce")
        hops, net_hops = rounds, 0
        if not rooted:
            self._own_part()
        if len(self.hosts) > 1:
            laps = 2 if collective == "all-reduce" else 1
            net_hops = laps * (len(self.hosts) - 1)
            hops = rounds - net_hops
            if log_steps:
                net_hops, hops = (len(self.hosts) - 1).bit_length(), 0
        total = sum(ring.bandwidth_Bps for ring in rings)
        for i, ring in enumerate(rings):
            part = size * ring.bandwidth_Bps / total
            cap = self._channel_rate(cost, ring.bandwidth_Bps / total)
            if rooted or len(self.hosts) > 1:
                moved = part if rooted else part * rounds / n
                ways = self._ways.round(ring, rooted=rooted)
                latency = self._way_s([route for route, _ in ways], hops, net_hops, cost)
                if rooted:
                    ways = [(route, None) for route in self._ways.open(ring)]
                flows = [_piped(route, moved, cost, cap, latency, at) for route, at in ways]
                repeat = 1
            else:
                flows = [
                    Flow(r, part / n, overhead=cost.wire, cap_Bps=cap, latency_s=cost.hop_s * self._pace)
                    for r in ring.routes
                ]
                repeat = rounds
            self._channels.append((f"channel {i}", flows, repeat, cost))
            self.builder.rings.append(self.request.group.nodes_along(ring.order))
        self._submit(after)

    def tree(self, rings: Sequence[FoundRing], protocol: str) -> None:
        """Plan an all-reduce along chains inside machines and a double binary tree between them."""
        cost = self.costs.protocols[protocol]
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
            self._channels.append((f"channel {i}", flows, 1, cost))
        self._submit(after)

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
        self._channels.append(("nvls", flows, 1, cost))
        if size > 0:
            self._windows = [
                _Window(up_to / size, (stages - 1) / max(1.0, rounds), rounds * round_s * self._pace)
                for up_to, rounds in self._nvls_rounds(heads)
            ]
        if len(self.hosts) > 1:
            self._net_stages = 2 * in_order_tree(len(self.hosts)).depth
            near = [self._ways.heads(ranks)[:heads] for ranks in (self.hosts[:1] if self._equal else self.hosts)]
            for i, own in enumerate(zip(*near, strict=True)):
                edges = self._both_ways([], own, size / heads / 2, simple, 1, self._net_stages, 1 / heads)
                self._channels.append((f"tree {i}", edges, 1, simple))
        self._submit(after)

    def point_to_point(self) -> None:
        """Plan all-to-all or send-recv, with the flows of all pairs at once."""
        cost, n = self.costs.protocols["P2P"], self.request.n_ranks
        if self.request.collective == "all-to-all":
            n_bytes, peers = self.request.size_bytes / n, n - 1
            flows = (
                between_equal(self.request, self._equal, n_bytes)
                if self._equal
                else self._pair_by_pair(permutations(range(n), 2), n_bytes)
            )
            self._own_part()
            first = _at_most_all(t.P2P_CHANNELS * t.P2P_CHUNK, self.request.size_bytes)
            self._windows = [_Window(first=first)]
        else:
            flows, peers = self._pair_by_pair(self.request.pairs or neighbour_pairs(n), self.request.size_bytes), 1
        after = self._begin("ncclDevKernel_SendRecv", cost.base_s, peers)
        late = []
        for flow in flows:
            over_network = flow.route.path_class == "net"
            latency_s = cost.hop_s * self._pace * peers + over_network * (cost.net_hop_s + self._plugin_s)
            late.append(replace(flow, latency_s=latency_s))
        self._channels.append(("p2p", late, 1, cost))
        self._submit(after)

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
        return [self.builder.work(kernel, first.name, base_s * self._pace, stream="kernel")]

    def _own_part(self) -> None:
        """Record the time of the rank's own part, 1/n of the data, which passes through its memory but no link."""
        part = self.request.machine.nodes[self.request.ranks[0]].part
        bandwidth_Bps = part.memory_bandwidth if isinstance(part, GpuPart) else None
        self._own_s = self.request.size_bytes / self.request.n_ranks / bandwidth_Bps if bandwidth_Bps else 0.0

    def _name(self, algorithm: str, protocol: str) -> str:
        """Return the kernel's name as it appears in NCCL's traces."""
        what = "".join(word.capitalize() for word in self.request.collective.split("-"))
        return f"ncclDevKernel_{what}_Sum_f32_{algorithm}_{protocol.upper()}"

    def _channel_rate(self, cost: ProtocolCost, fraction: float) -> float:
        """Return the largest rate on the link, in B/s, of a *fraction* of the channels in use."""
        return self.n_filled * fraction * cost.channel_Bps * cost.wire

    def _submit(self, after: Sequence[int]) -> None:
        """Add the collected channels to the plan, with each link used at the share that its kind allows.

        All channels' bytes over a link need a certain time at that share of its bandwidth; each flow's rate is capped
        so that it ends exactly then.  The threads that drive a GPU's links also move its own part, and have to fill the
        pipeline first.
        """
        links = self.request.machine.alike
        n = len(links)
        needed_s: dict[int, float] = {}  # by link, or by key for flows of equal machines
        slow: list[tuple[Flow, float]] = []
        for _, flows, repeat, cost in self._channels:
            for flow in flows:
                sent, shares = flow.wire_bytes, self._shares(flow.route, cost)
                for index, carried, keys in crossed(flow):
                    link = links[index]
                    at_full_s = sent * carried * repeat / link.bandwidth_Bps
                    taken_s = at_full_s / (1.0 if self._is_trunk(link) else shares.get(link.kind, 1.0))
                    for key, times in keys:
                        needed_s[key] = added(needed_s.get(key, 0.0), taken_s, times)
                if flow.route.path_class in _THROUGH_CPU:
                    slow.append((flow, self._alone_s(flow, repeat)))
        for flow, alone_s in slow:
            for index, _, keys in crossed(flow):
                if links[index].kind == "pcie":
                    for key, _ in keys:
                        needed_s[key] = max(needed_s[key], alone_s)
        first = self._channels[0][3]
        filled = first.fill * self._windows[0].first
        stage_s = max((s for i, s in needed_s.items() if links[i % n].kind in NETWORK_LINKS), default=0.0)
        for key, sent_s in needed_s.items():
            if links[key % n].kind in GPU_LINKS:
                needed_s[key] = first.own_passes * self._own_s + min(
                    sent_s * each.share * (1.0 + first.fill * each.first) + each.rounds_s for each in self._windows
                )
            needed_s[key] += filled * self._net_stages * stage_s
        self._note_bound(needed_s)
        for stream, flows, repeat, _ in self._channels:
            capped = []
            for flow in flows:
                cap = flow.cap_Bps
                longest_s = max([needed_s[keys[0][0]] for _, _, keys in crossed(flow)], default=0.0)
                if longest_s > 0:
                    cap = min(cap, flow.wire_bytes * repeat / longest_s)
                capped.append(Flow(flow.route, flow.bytes, flow.count, flow.overhead, cap, flow.latency_s, flow.at))
            self.builder.transfer(self.request.collective, capped, stream=stream, after=after, repeat=repeat)

    def _note_bound(self, needed_s: dict[int, float]) -> None:
        """Record the link that takes longest at its share, and report the share if it explains the time."""
        if not needed_s:
            return
        least_s = max(needed_s.values()) * (1 - 1e-12)
        at = self._channels[0][1][0].at
        numbered = {(at.sites.first_of(key) if at else key): key for key, s in needed_s.items() if s >= least_s}
        index = min(numbered)
        bound = numbered[index]
        link = self.request.machine.links[index]
        self.builder.facts["bound_link"] = link.name
        at_full_s = 0.0
        for _, flows, repeat, _ in self._channels:
            for flow in flows:
                for _, carried, keys in crossed(flow):
                    for key, times in keys:
                        if key == bound:
                            taken_s = flow.wire_bytes * carried * repeat / link.bandwidth_Bps
                            at_full_s = added(at_full_s, taken_s, times)
        share = at_full_s / needed_s[bound] if needed_s[bound] > 0 else 1.0
        self.builder.facts["bound_share"] = round(share, 6)
        by_bytes = needed_s[bound] > self._channels[0][3].base_s  # otherwise latency dominates
        if self.tells and share < _TOLD_BELOW and by_bytes:
            reached = f"{format_bandwidth(share * link.bandwidth_Bps)}, {share:.0%} of the link's rate"
            self.builder.notes.append(f"{link.name} limits NCCL to {reached}")

    def _shares(self, route: Route, cost: ProtocolCost) -> dict[str, float]:
        """Return the usable share of link bandwidth on *route* by kind of link; other kinds are fully usable."""
        staged = route.transport == "network-staged"
        key = staged, cost.share
        if key not in self._known_shares:
            shared = self.costs.shared
            net = shared.staged_share if staged else shared.network_share
            self._known_shares[key] = dict.fromkeys(NETWORK_LINKS, net) | dict.fromkeys(GPU_LINKS, cost.share)
        return self._known_shares[key]

    def _is_trunk(self, link: Link) -> bool:
        """Return whether *link* joins two switches of the network, which many flows fill."""
        nodes = self.request.machine.nodes
        return nodes[link.src].kind == nodes[link.dst].kind == "network-switch"

    def _alone_s(self, flow: Flow, repeat: int) -> float:
        """Return the least time in seconds of a flow over PCIe through a CPU to another GPU of the machine.

        A single flow does not saturate PCIe there; several together do.
        """
        links = self.request.machine.alike
        full_s = [
            flow.wire_bytes * carried / links[i].bandwidth_Bps
            for i, carried in flow.route.links
            if links[i].kind == "pcie"
        ]
        return repeat * max(full_s, default=0.0) / self.costs.shared.pcie_share

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
            ways: list[tuple[Route, Way | None, float]] = [
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
        cap = self._channel_rate(cost, fraction)
        return [_piped(route, n_bytes, cost, cap, latency, at) for route, at, n_bytes in ways]


def _at_most_all(window_bytes: float, size_bytes: float) -> float:
    """Return the window as a fraction of *size_bytes*, at most 1."""
    return min(1.0, window_bytes / size_bytes) if size_bytes > 0 else 1.0


def _piped(route: Route, n_bytes: float, cost: ProtocolCost, cap_Bps: float, latency_s: float, at: Way | None) -> Flow:
    """Return a flow whose last byte arrives *latency_s* after it was sent, including the route's own latency."""
    extra = max(0.0, latency_s - route.latency_s)
    return Flow(route, n_bytes, overhead=cost.wire, cap_Bps=cap_Bps, latency_s=extra, at=at)
