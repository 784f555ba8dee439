"""The strategy ``nccl``: the algorithm and protocol that NCCL would choose, with their costs.

On GPUs that no NVLink ring spans, NCCL would fall back to slower links; here the rings
through neighbours, trees over NVLink and rings over PCIe that the searches find stand
against each other, and the fastest is taken.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.network.route import Route, route_along
from simulator.plan.plan import Flow, Plan, PlanBuilder
from simulator.strategies.algorithms.double_tree import two_trees
from simulator.strategies.base import Request, Unsuitable
from simulator.strategies.nccl.cost import DEFAULT_COSTS, Costs, ProtocolCost
from simulator.strategies.nccl.graph import comm_graph
from simulator.strategies.nccl.tuning import Choice, CommGraph, choose
from simulator.strategies.search.rings import FoundRing, find_rings
from simulator.strategies.search.trees import find_trees

__all__ = ["NCCL", "Nccl", "nccl"]

_PCIE = ("pix", "pxb", "phb", "sys")
_MEDIA = ("nvlink", "pcie", "host", "network")


class Nccl:
    """NCCL.

    Parameters
    ----------
    algorithm : str, optional
        ``ring``, ``tree`` or ``nvls`` in place of NCCL's choice.
    gpus_per_process : int, optional
        How many GPUs one host thread launches for.  Otherwise as nccl-tests is mostly run:
        on one machine one thread drives all GPUs, over several each GPU has its process.
    costs : Costs
        What the protocols cost.

    """

    name = "nccl"
    summary = "what NCCL would do at that size: algorithm, protocol, channels and their latencies"

    def __init__(
        self, algorithm: str | None = None, gpus_per_process: int | None = None, costs: Costs = DEFAULT_COSTS
    ) -> None:
        self.algorithm = algorithm
        self.gpus_per_process = gpus_per_process
        self.costs = costs

    def plan(self, request: Request) -> Plan:
        """Return the plan; raises Unsuitable where a forced algorithm does not fit."""
        if request.n_ranks < 2:
            return Plan(())
        builder = PlanBuilder()
        if request.collective in ("all-to-all", "send-recv"):
            self._point_to_point(builder, request)
            return builder.build()
        graph = comm_graph(request)
        wanted = (self.algorithm,) if self.algorithm else None
        choice = choose(graph, request.collective, request.size_bytes, algorithms=wanted)
        builder.facts |= {
            "algorithm": choice.algorithm,
            "protocol": choice.protocol,
            "channels": graph.comm_channels,
            "planned_us": round(choice.time_us, 3),
        }
        if choice.algorithm in ("nvls", "nvls_tree"):
            self._nvls(builder, request)
        elif choice.algorithm == "tree":
            self._tree(builder, request, choice)
        else:
            self._ring(builder, request, choice)
        return builder.build()

    # -- the parts of a plan ---------------------------------------------------------

    def _begin(self, builder: PlanBuilder, request: Request, label: str, base_s: float, n_peers: int = 0) -> list[int]:
        """Add launch and protocol start, side by side; return what the first transfer waits for."""
        driven = self.gpus_per_process or (request.n_ranks if len(request.by_host()) == 1 else 1)
        builder.facts |= {"gpus_per_process": driven, "peers": n_peers}
        launch_s = driven * (self.costs.launch_s + n_peers * self.costs.peer_launch_s)
        first = request.machine.nodes[request.ranks[0]]
        return [
            builder.work("launch", f"host of {first.name}", launch_s, stream="host"),
            builder.work(label, first.name, base_s, stream="kernel"),
        ]

    def _ring(self, builder: PlanBuilder, request: Request, choice: Choice) -> None:
        rings = find_rings(request, both_directions=True)
        n, size = request.n_ranks, request.size_bytes
        cost = self.costs.protocols[choice.protocol]
        total = sum(ring.bandwidth_Bps for ring in rings)
        if request.collective == "all-reduce" and any(ring.kind in ("nvlink-relay", "mixed") for ring in rings):
            trees = find_trees(request)
            ring_Bps = total * self._share(rings[0].routes, cost) * n / (2 * (n - 1))
            tree_Bps = sum(tree.bandwidth_Bps for tree in trees) * cost.share
            builder.notes.append(
                f"no NVLink ring spans these GPUs: {len(rings)} {rings[0].kind} rings reach "
                f"{ring_Bps / 1e9:.1f} GB/s, {len(trees)} NVLink trees {tree_Bps / 1e9:.1f} GB/s"
            )
            if tree_Bps > ring_Bps:
                self._packed_trees(builder, request, cost)
                return
        after = self._begin(builder, request, _kernel(request, "RING", choice.protocol), cost.base_s)
        # Pipelined in many small chunks: all hops at once, the first chunk's way ahead of them.
        fluid = request.collective in ("broadcast", "reduce") or choice.algorithm == "pat"
        rounds = 2 * (n - 1) if request.collective == "all-reduce" else n - 1
        hops = (n - 1).bit_length() if choice.algorithm == "pat" else rounds
        for i, ring in enumerate(rings):
            part = size * ring.bandwidth_Bps / total
            share = self._share(ring.routes, cost)
            cap = ring.bandwidth_Bps * share * cost.wire
            routes = _open(request, ring) if request.collective in ("broadcast", "reduce") else ring.routes
            flow_bytes = part * (n - 1) / n if choice.algorithm == "pat" else part if fluid else part / n
            latency = cost.hop_s * hops if fluid else cost.hop_s
            flows = [Flow(r, flow_bytes, overhead=cost.wire, cap_Bps=cap, latency_s=latency) for r in routes]
            builder.transfer(request.collective, flows, stream=f"channel {i}", after=after, repeat=1 if fluid else rounds)
            builder.facts |= {"hops": hops, "medium": _worst(ring.routes)}
            builder.rings.append(tuple(request.ranks[r] for r in ring.order))

    def _packed_trees(self, builder: PlanBuilder, request: Request, cost: ProtocolCost) -> None:
        trees = find_trees(request)
        after = self._begin(builder, request, _kernel(request, "TREE", "SIMPLE"), cost.base_s)
        builder.facts |= {"algorithm": "packed trees", "hops": 2 * max(tree.depth for tree in trees), "medium": "nvlink"}
        for i, tree in enumerate(trees):
            pairs = [(request.ranks[a], request.ranks[b]) for a, b in tree.edges]
            flows = [
                Flow(
                    request.router.route(*way),
                    request.size_bytes / len(trees),
                    overhead=cost.wire,
                    cap_Bps=tree.bandwidth_Bps * cost.share * cost.wire,
                    latency_s=2 * tree.depth * cost.hop_s,
                )
                for a, b in pairs
                for way in ((b, a), (a, b))
            ]
            builder.transfer("all-reduce", flows, stream=f"channel {i}", after=after)

    def _tree(self, builder: PlanBuilder, request: Request, choice: Choice) -> None:
        """Chains inside the machines, a double binary tree between them, all edges at once."""
        rings = find_rings(request, both_directions=len(request.by_host()) == 1)
        cost = self.costs.protocols[choice.protocol]
        total = sum(ring.bandwidth_Bps for ring in rings)
        after = self._begin(builder, request, _kernel(request, "TREE", choice.protocol), cost.base_s)
        for i, ring in enumerate(rings):
            part = request.size_bytes * ring.bandwidth_Bps / total
            chains = _chains(request, ring)
            ups = [(b, a, part) for chain in chains for a, b in zip(chain, chain[1:], strict=False)]
            depth = max(len(chain) for chain in chains) - 1
            if len(chains) > 1:
                trees = two_trees(len(chains))
                depth += trees[0].depth
                for tree in trees:
                    ups += [(chains[c][0], chains[p][0], part / 2) for c, p in enumerate(tree.parent) if p >= 0]
            flows = self._both_ways(request, ups, cost, 2 * depth)
            builder.transfer(request.collective, flows, stream=f"channel {i}", after=after)
            builder.facts |= {"hops": 2 * depth, "medium": _worst([flow.route for flow in flows])}

    def _nvls(self, builder: PlanBuilder, request: Request) -> None:
        """The switch adds and spreads: each GPU sends its data once and receives the result once.

        Between machines each GPU's part of the sum goes through a double binary tree.
        """
        cost = self.costs.protocols["NVLS"]
        size, hosts = request.size_bytes, list(request.by_host().values())
        n = len(hosts[0])
        sent = {"all-reduce": size, "reduce-scatter": size, "all-gather": size / n}[request.collective]
        received = {"all-reduce": size, "reduce-scatter": size / n, "all-gather": size}[request.collective]
        after = self._begin(builder, request, _kernel(request, "NVLS", "SIMPLE"), cost.base_s)
        flows = []
        for node in request.ranks:
            ways = _switch_links(request, node)
            for up, down in ways:
                for route, n_bytes in ((up, sent / len(ways)), (down, received / len(ways))):
                    cap = route.bandwidth_Bps * cost.share
                    flows.append(Flow(route, n_bytes, cap_Bps=cap, latency_s=cost.hop_s))
        hops = 1
        if len(hosts) > 1:
            trees = two_trees(len(hosts))
            hops += 2 * trees[0].depth
            for i in range(n):
                heads = [ranks[i] for ranks in hosts]
                ups = [(heads[c], heads[p], size / n / 2) for tree in trees for c, p in enumerate(tree.parent) if p >= 0]
                flows += self._both_ways(request, ups, self.costs.protocols["Simple"], hops)
        builder.transfer(request.collective, flows, stream="nvls", after=after)
        builder.facts |= {"hops": hops, "medium": _worst([flow.route for flow in flows])}

    def _both_ways(
        self, request: Request, ups: Sequence[tuple[int, int, float]], cost: ProtocolCost, hops: int
    ) -> list[Flow]:
        """Return flows up and down the edges (child, parent, bytes) of a tree, all at once."""
        flows = []
        for a, b, n_bytes in ups:
            for src, dst in ((a, b), (b, a)):
                route = request.router.route(request.ranks[src], request.ranks[dst])
                cap = route.bandwidth_Bps * self._share([route], cost) * cost.wire
                flows.append(Flow(route, n_bytes, overhead=cost.wire, cap_Bps=cap, latency_s=hops * cost.hop_s))
        return flows

    def _point_to_point(self, builder: PlanBuilder, request: Request) -> None:
        cost = self.costs.protocols["P2P"]
        n, ranks = request.n_ranks, request.ranks
        if request.collective == "all-to-all":
            pairs = [(a, b) for a in range(n) for b in range(n) if a != b]
            n_bytes, peers = request.size_bytes / n, n - 1
        else:
            pairs = list(request.pairs) or [(a, (a + 1) % n) for a in range(n)]
            n_bytes, peers = request.size_bytes, 1
        after = self._begin(builder, request, "ncclDevKernel_SendRecv", cost.base_s, peers)
        flows = []
        for a, b in pairs:
            route = request.router.route(ranks[a], ranks[b])
            cap = route.bandwidth_Bps * self._share([route], cost)
            flows.append(Flow(route, n_bytes, cap_Bps=cap, latency_s=cost.hop_s))
        builder.transfer(request.collective, flows, stream="p2p", after=after)
        builder.facts |= {"hops": 1, "medium": _worst([flow.route for flow in flows])}

    def _share(self, routes: Sequence[Route], cost: ProtocolCost) -> float:
        return cost.share * self.costs.medium_share[_worst(routes)]


def _worst(routes: Sequence[Route]) -> str:
    """Return the slowest medium that *routes* cross: nvlink, pcie, host or network."""
    return max((_medium(route) for route in routes), key=_MEDIA.index)


def _medium(route: Route) -> str:
    if route.path_class == "net":
        return "network"
    if route.transport == "host-staged":
        return "host"
    return "pcie" if route.path_class in _PCIE else "nvlink"


def _kernel(request: Request, algorithm: str, protocol: str) -> str:
    """Return the kernel's name as NCCL and its readers of traces spell it."""
    what = "".join(word.capitalize() for word in request.collective.split("-"))
    return f"ncclDevKernel_{what}_Sum_f32_{algorithm}_{protocol.upper()}"


def _open(request: Request, ring: FoundRing) -> list[Route]:
    """Return the hops of a ring but the one that leads into the root (broadcast) or out of it (reduce)."""
    root = request.ranks[request.root]
    if request.collective == "broadcast":
        return [route for route in ring.routes if route.dst != root]
    return [route for route in ring.routes if route.src != root]


def _chains(request: Request, ring: FoundRing) -> list[list[int]]:
    """Cut a ring into its stretches on one machine."""
    host = [request.machine.nodes[request.ranks[r]].host for r in ring.order]
    chains: list[list[int]] = []
    for i, rank in enumerate(ring.order):
        if i and host[i] == host[i - 1]:
            chains[-1].append(rank)
        else:
            chains.append([rank])
    return chains


def _switch_links(request: Request, gpu: int) -> list[tuple[Route, Route]]:
    """Return the ways from a GPU to its NVLink switches and back."""
    machine = request.machine
    found = []
    for link in machine.outgoing[gpu]:
        if machine.nodes[link.dst].kind == "nvlink-switch":
            back = machine.links[link.index ^ 1]  # the directions of a wire stand side by side
            found.append(
                (route_along(machine, [link], "nvl", "nvls"), route_along(machine, [back], "nvl", "nvls"))
            )
    if not found:
        raise Unsuitable("NVLS needs an NVLink switch")
    return found


def nccl(algorithm: str | None = None, gpus_per_process: int | None = None) -> Nccl:
    """Return NCCL with a forced algorithm, or launched by other processes than nccl-tests'."""
    return Nccl(algorithm, gpus_per_process)


NCCL = Nccl()
