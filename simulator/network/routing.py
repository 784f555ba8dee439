"""Routes between two endpoints, by the rules of real transports (docs/decisions/host.md)."""

from collections.abc import Collection, Iterable, Sequence
from functools import cache

from simulator.errors import InputError, few, mention
from simulator.kept import Kept
from simulator.network.machine import Link, Machine, Node
from simulator.network.route import CLASSES, MovableRoute, Route, Share, join, route_along, striped
from simulator.records import lists_by_key, replace, sums_by_key
from simulator.topology.parts import GPU_LINKS, NETWORK_LINKS, NicPart

_DEVICE_LINKS = GPU_LINKS | {"c2c"}
_HOST_LINKS = frozenset(("pcie", "socket", "c2c", "storage"))
_MAX_STRIPES = 64
_Paths = list[list[Link]]


class Router(Kept):
    """Routes over one machine, found on first use, and what is kept for all groups on it."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.machine = machine
        self._kept: dict[tuple[int, int], Route] = {}
        self._nics_of = cache(self._find_nics)
        self._every_nic = cache(self._find_every_nic)
        self.nearest_cpu = cache(self._nearest_cpu)
        self._models = cache(lambda src, dst: MovableRoute(machine, self.route(src, dst)))

    def route(self, src: int, dst: int) -> Route:
        """Return the route between nodes, GPUs or CPUs, *src* and *dst*; raises InputError if no links lead there."""
        key = (src, dst)
        found = self._kept.get(key)
        if found is None:
            (here, a, own_src), (there, b, own_dst) = self.machine.locate(src), self.machine.locate(dst)
            first, second = here.first, there.first + (a != b and here is there)
            if (a, b) != (first, second):
                found = self._models(here.node + own_src, there.node_of(second) + own_dst).at(a, b)
            else:
                found = self._find(self.machine.nodes[src], self.machine.nodes[dst])
            self._kept[key] = found
        return found

    def relay(self, src: int, via: int, dst: int) -> Route | None:
        """Return the NVLink route from *src* through the GPU *via* to *dst*, or None if a leg is missing."""
        first, second = self.direct(src, via), self.direct(via, dst)
        return None if first is None or second is None else join(self.machine, first, second, "nvb", "nvlink-relay")

    def out_through(self, src: int, via: int, dst: int) -> Route:
        """Return the route over NVLink to the GPU *via*, and on over its NICs to *dst* (NCCL's PXN)."""
        onward = self.route(via, dst)
        return join(self.machine, self.route(src, via), onward, onward.path_class, onward.transport)

    def _nearest_cpu(self, node: int) -> int | None:
        """Return the CPU nearest to *node*, or None if none is linked to it."""
        here = self.machine.nodes[node]
        cpus = [n.index for n in self.machine.nodes_of(here.host) if n.kind == "cpu"] if here.kind != "cpu" else []
        found = [(len(path), cpu) for cpu in cpus for path in self._host_paths(node, cpu)[:1]]
        return node if here.kind == "cpu" else min(found)[1] if found else None

    def nics_near(self, node: int) -> list[int]:
        """Return the NICs that carry traffic of *node* to other machines."""
        return [nic for nic, _ in self._nics_of(node)]

    def owners(self, nodes: Iterable[int]) -> dict[int, list[int]]:
        """Return, for each NIC that carries traffic of *nodes*, in their order, those nearest to it."""
        legs = ((node, nic, CLASSES.index(leg.path_class)) for node in nodes for nic, leg in self._nics_of(node))
        found = {nic: dict(near) for nic, near in lists_by_key((nic, (node, far)) for node, nic, far in legs).items()}
        return {nic: [n for n, far in near.items() if far == min(near.values())] for nic, near in found.items()}

    def _find(self, src: Node, dst: Node) -> Route:
        if src.index == dst.index:
            return Route(src.index, dst.index, "loc", "local", (), (), 0.0, float("inf"))
        route = self._inside(src, dst) if src.host == dst.host else self._between(src, dst)
        if route is None:  # no rule covers them: over links of any kind
            paths = self._equal(self._shortest(src.index, dst.index, None, None))
            route = self._along(paths, "direct", (), "any") if paths else None
        if route is None:
            down = few([link.name.replace("->", "-") for link in self.machine.down], 4)
            why = f" without {down} ({mention('slow_links')})" if down else ""
            raise InputError(f"{self.machine.name}: no links lead from {src.name} to {dst.name}{why}")
        return route

    def _inside(self, src: Node, dst: Node) -> Route | None:
        if src.kind == dst.kind == "gpu":
            direct = self.direct(src.index, dst.index)
            if direct is not None:
                return direct
            paths = self._host_paths(src.index, dst.index)
            if paths and _allows(self.machine.peer_level(src, dst), self._class_of(paths[0])):
                return self._along(paths, "peer-to-peer")
            return self._staged(src.index, dst.index)
        paths = self._host_paths(src.index, dst.index)
        cpus = [n.index for n in (src, dst) if n.kind == "cpu"]
        return self._along(paths, "host", self._memory(cpus, 1.0)) if paths else None

    def direct(self, src: int, dst: int) -> Route | None:
        """Return the NVLink route between two GPUs without a relay, or None."""
        paths = self._shortest(src, dst, _DEVICE_LINKS, ("nvlink-switch",))
        if not paths:
            return None
        return striped(self.machine, [route_along(self.machine, p, "nvl", "nvlink") for p in paths])

    def _staged(self, src: int, dst: int, transport: str = "host-staged", path_class: str = "") -> Route | None:
        """Return the route into the memory of the CPU nearest to *src*, and out of it; None if a leg is missing."""
        cpu = self.nearest_cpu(src)
        up, down = ([], []) if cpu is None else (self._host_paths(src, cpu), self._host_paths(cpu, dst))
        if cpu is None or not up or not down:
            return None
        worst = path_class or max(self._class_of([*up[0], *down[0]]), "phb", key=CLASSES.index)
        first = self._along(up, "host", self._memory([cpu], 2.0), worst)
        return join(self.machine, first, self._along(down, "host", (), worst), worst, transport)

    def _along(self, paths: _Paths, transport: str, extra: Collection[Share] = (), path_class: str = "") -> Route:
        """Return the route over all of *paths*, with the bytes shared as switches spread flows over equal paths."""
        found = path_class or self._class_of(paths[0])
        return striped(self.machine, [route_along(self.machine, path, found, transport, extra) for path in paths])

    def _between(self, src: Node, dst: Node) -> Route | None:
        """Return the route over the network, by the nearest NICs in order; where none joins these, by farther ones."""
        out, into = self._nics_of(src.index), self._nics_of(dst.index)
        routes = self._over_nics(out, into)
        if not routes and out and into:
            far = self._every_nic(dst.index)
            routes = self._over_nics(out, far) or self._over_nics(self._every_nic(src.index), far)
        return striped(self.machine, routes) if routes else None

    def _over_nics(self, out: Sequence[tuple[int, Route]], into: Sequence[tuple[int, Route]]) -> list[Route]:
        routes = []
        for i in range(max(len(out), len(into)) if out and into else 0):
            nic_a, leg_a = out[i % len(out)]
            for j in range(i, i + len(into)):
                nic_b, leg_b = into[j % len(into)]
                wires = self._network_paths(nic_a, nic_b)
                if not wires:
                    continue
                direct = leg_a.transport == leg_b.transport == "gpudirect"
                transport = "network" if direct else "network-staged"
                ways = [route_along(self.machine, path, "net", transport) for path in wires]
                start = join(self.machine, leg_a, striped(self.machine, ways, evenly=True), "net", transport)
                routes.append(join(self.machine, start, self._reversed(leg_b), "net", transport))
                break
        return routes

    def _find_nics(self, node: int) -> list[tuple[int, Route]]:
        """Return (NIC, route to it) for the NICs nearest to a GPU or CPU."""
        run, host, own = self.machine.locate(node)
        if host != run.first:
            known = self._nics_of(run.node + own)
            return [(leg.dst, leg) for leg in (MovableRoute(self.machine, leg).at(host) for _, leg in known)]
        every = self._every_nic(node)
        if not every:
            return []
        near = _nearest(every)
        if CLASSES.index(near[0][1].path_class) <= CLASSES.index("pxb") or self.machine.nodes[node].kind == "cpu":
            shortest = min(len(leg.links) for _, leg in near)
            return [(nic, leg) for nic, leg in near if len(leg.links) == shortest]
        # Through the CPU, all NICs are equally near; they are dealt out in turn to the GPUs that are as far from them.
        local = [n.index for n in self.machine.nodes_of(host) if n.kind == "gpu"]
        nics = [nic for nic, _ in near]
        alike = [gpu for gpu in local if [nic for nic, _ in _nearest(self._every_nic(gpu))] == nics]
        turn = alike.index(node)
        return near[turn :: len(alike)] or [near[turn % len(near)]]

    def _find_every_nic(self, node: int) -> list[tuple[int, Route]]:
        """Return (NIC, route to it) for all NICs of the machine of a GPU or CPU, the nearest first."""
        host = self.machine.locate(node)[1]
        found: list[tuple[int, int, Route]] = []
        for nic in self.machine.nodes_of(host):
            if nic.kind != "nic":
                continue
            paths = self._host_paths(node, nic.index)
            if not paths:
                continue
            path_class, part = self._class_of(paths[0]), nic.part
            free = isinstance(part, NicPart) and part.gpudirect
            if self.machine.nodes[node].kind == "cpu":
                leg = self._along(paths, "host", self._memory([node], 1.0))
            elif free and _allows(self.machine.transport.gpudirect_rdma, path_class):
                leg = self._along(paths, "gpudirect")
            else:
                leg = self._staged(node, nic.index, "host", path_class) or self._along(paths, "host")
            found.append((CLASSES.index(path_class), nic.index, leg))
        return [(nic, leg) for _, nic, leg in sorted(found, key=lambda each: each[:2])]

    def _reversed(self, leg: Route) -> Route:
        links = self.machine.links
        own = {links[index].resource for index, _ in leg.links}
        twins = [(self.machine.reverse(links[index]), share) for index, share in leg.links]
        kept = [load for load in leg.loads if load[0] not in own]
        loads = tuple(sums_by_key([*((twin.resource, share) for twin, share in twins), *kept]).items())
        back = tuple((twin.index, share) for twin, share in twins)
        return replace(leg, src=leg.dst, dst=leg.src, links=back, loads=loads)

    def _memory(self, cpus: Iterable[int], share: float) -> list[Share]:
        return [(self.machine.memory_bus[c], share) for c in cpus if c in self.machine.memory_bus]

    def _host_paths(self, src: int, dst: int) -> _Paths:
        return self._equal(self._shortest(src, dst, _HOST_LINKS, ("pcie-switch", "cpu")))

    def _equal(self, paths: _Paths) -> _Paths:
        """Return the shortest *paths* as wide and of the class of the first, which alone serves between sockets."""
        if len(paths) < 2:
            return paths
        widest, path_class = min(link.bandwidth_Bps for link in paths[0]), self._class_of(paths[0])
        if path_class == "sys":
            return paths[:1]
        wide = [path for path in paths if min(link.bandwidth_Bps for link in path) >= widest]
        return [path for path in wide if self._class_of(path) == path_class]

    def _network_paths(self, src: int, dst: int) -> _Paths:
        nodes, outgoing = self.machine.nodes, self.machine.outgoing
        near = [
            [link, self.machine.reverse(back)]  # a single switch between them: skip the search over its many ports
            for link in outgoing[src]
            if link.kind in NETWORK_LINKS and nodes[link.dst].kind == "network-switch"
            for back in outgoing[dst]
            if back.kind in NETWORK_LINKS and back.dst == link.dst
        ]
        return near or self._shortest(src, dst, NETWORK_LINKS, ("network-switch",))

    def _class_of(self, path: Iterable[Link]) -> str:
        """Return the class of a path over PCIe by its extent: pix, pxb, phb or sys."""
        nodes = [self.machine.nodes[v] for link in path for v in (link.src, link.dst)]
        cpus = {n.index for n in nodes if n.kind == "cpu"}
        if cpus:
            return "phb" if len(cpus) == 1 else "sys"
        return "pix" if len({n.index for n in nodes if n.kind == "pcie-switch"}) <= 1 else "pxb"

    def _shortest(self, src: int, dst: int, usable: Collection[str] | None, through: Collection[str] | None) -> _Paths:
        """Return up to 64 shortest paths by *usable* links *through* nodes, widest first, then by link numbers."""
        nodes, outgoing = self.machine.nodes, self.machine.outgoing
        depth = {src: 0}
        frontier = [src]
        parents: dict[int, list[Link]] = {}
        while frontier and dst not in depth:
            following: list[int] = []
            for v in frontier:
                for link in outgoing[v]:
                    if usable is not None and link.kind not in usable:
                        continue
                    if link.dst != dst and through is not None and nodes[link.dst].kind not in through:
                        continue
                    if link.dst not in depth:
                        depth[link.dst] = depth[v] + 1
                        following.append(link.dst)
                    if depth[link.dst] == depth[v] + 1:
                        parents.setdefault(link.dst, []).append(link)
            frontier = following
        if dst not in depth:
            return []
        paths: _Paths = [[]]
        while paths[0] == [] or paths[0][0].src != src:
            heads = [(path, path[0].src if path else dst) for path in paths]
            paths = [[link, *path] for path, head in heads for link in parents[head]][:_MAX_STRIPES]
        paths.sort(key=lambda path: (-min(link.bandwidth_Bps for link in path), [link.index for link in path]))
        return paths


def _allows(level: str, path_class: str) -> bool:
    return level != "none" and CLASSES.index(path_class) <= CLASSES.index(level)


def _nearest(every: Sequence[tuple[int, Route]]) -> list[tuple[int, Route]]:
    """Return those of *every* NIC, the nearest first, that are on the nearest class of path."""
    return [(nic, leg) for nic, leg in every if leg.path_class == every[0][1].path_class]
