"""The links and resources that a flow crosses between two endpoints: a :class:`Route`."""

from collections.abc import Iterable, Sequence

from simulator.network.machine import Link, Machine
from simulator.records import dataclass, sums_by_key

# Best first; the same order as NCCL's path types.
CLASSES = ("loc", "nvl", "nvb", "pix", "pxb", "phb", "sys", "net", "any")

Share = tuple[int, float]  # of a flow's bytes, by link or resource
_Shares = Iterable[Share]


@dataclass(frozen=True, slots=True)
class Route:
    """A route from node ``src`` to node ``dst``, at ``bandwidth_Bps`` for a flow that is alone."""

    src: int
    dst: int
    path_class: str
    transport: str
    links: tuple[Share, ...]  # crossed, with shares of bytes: 1/2 for each of two striped paths
    loads: tuple[Share, ...]  # resources: 2 for memory that is written and read
    latency_s: float
    bandwidth_Bps: float


def route_along(
    machine: Machine, path: Sequence[Link], path_class: str, transport: str, extra: Iterable[Share] = ()
) -> Route:
    """Return the route over *path*, which also loads the resources *extra*, given as (resource, share)."""
    fabrics = [machine.fabric[link.src] for link in path[1:] if link.src in machine.fabric]
    loads = [(resource, 1.0) for resource in (*(link.resource for link in path), *fabrics)]
    steps_s = ((link.latency_s, machine.nodes[link.src].latency_s if i else 0.0) for i, link in enumerate(path))
    latency_s = sum((seconds for step in steps_s for seconds in step), 0.0)
    ends, links = (path[0].src, path[-1].dst), ((link.index, 1.0) for link in path)
    return _made(machine, ends, (path_class, transport), links, [*loads, *extra], latency_s)


def join(machine: Machine, first: Route, second: Route, path_class: str, transport: str) -> Route:
    """Return *first* followed by *second*, cut-through at the node where they meet."""
    links, loads = (*first.links, *second.links), (*first.loads, *second.loads)
    latency_s = first.latency_s + second.latency_s + machine.nodes[first.dst].latency_s
    return _made(machine, (first.src, second.dst), (path_class, transport), links, loads, latency_s)


class MovableRoute:
    """A *route* movable to equal hosts; ``links`` and ``loads``: (number, index into ``hosts``, stride, share)."""

    def __init__(self, machine: Machine, route: Route) -> None:
        links, resources = machine.link_copies, machine.resource_copies
        self._route = route
        (src, a, _), (dst, b, _) = machine.locate(route.src), machine.locate(route.dst)
        self.hosts = hosts = a, b
        self._n_own = src.n_own, dst.n_own
        self.links = [(n, int(links.host(n) == hosts[1]), links.stride(n), share) for n, share in route.links]
        self.loads = [(n, int(resources.host(n) == hosts[1]), resources.stride(n), share) for n, share in route.loads]

    def at(self, *hosts: int) -> Route:
        """Return the route within host *hosts*, or between two *hosts*."""
        route = self._route
        by = hosts[0] - self.hosts[0], hosts[-1] - self.hosts[1]
        ends = route.src + by[0] * self._n_own[0], route.dst + by[1] * self._n_own[1]
        links = sorted([(number + by[end] * stride, share) for number, end, stride, share in self.links])
        loads = sorted([(number + by[end] * stride, share) for number, end, stride, share in self.loads])
        kind = route.path_class, route.transport
        return Route(*ends, *kind, tuple(links), tuple(loads), route.latency_s, route.bandwidth_Bps)


def striped(machine: Machine, routes: Sequence[Route], *, evenly: bool = False) -> Route:
    """Return one route that stripes its bytes over *routes* by bandwidth, or *evenly*, as switches hash flows."""
    if len(routes) == 1:
        return routes[0]
    total = sum(route.bandwidth_Bps for route in routes)
    parts = [(route, 1.0 / len(routes) if evenly else route.bandwidth_Bps / total) for route in routes]
    links, loads = ([(i, s * part) for r, part in parts for i, s in getattr(r, of)] for of in ("links", "loads"))
    first, latency_s = routes[0], max(route.latency_s for route in routes)
    return _made(machine, (first.src, first.dst), (first.path_class, first.transport), links, loads, latency_s)


def _made(
    machine: Machine, ends: tuple[int, int], by: tuple[str, str], links: _Shares, loads: _Shares, latency_s: float
) -> Route:
    """Return the route between *ends*, with the sums of shares; *by*: its class of path and its transport."""
    crossed, loaded = (tuple(sorted(sums_by_key(shares).items())) for shares in (links, loads))
    bandwidth = min((machine.capacity_Bps[r] / share for r, share in loaded), default=float("inf"))
    return Route(*ends, *by, crossed, loaded, latency_s, bandwidth)
