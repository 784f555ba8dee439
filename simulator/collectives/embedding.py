"""Subgroups and rings of each machine, and orders of ranks that place communicating ranks close together."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import combinations

from simulator.collectives.algorithms import Schedule
from simulator.collectives.lower import estimate_s, overlapped_cost
from simulator.collectives.request import Request
from simulator.collectives.search.rings import FoundRing, find_rings
from simulator.network.route import Route
from simulator.records import replace
from simulator.workload import Collective

_IMPROVED_UP_TO = 16  # ranks per machine
_ALL_STARTS_UP_TO = 8


def subset(
    request: Request, ranks: list[int], *, collective: Collective | None = None, root: int | None = None
) -> Request:
    """Return *request* restricted to some of its *ranks*, renumbered from 0; *root* is an old rank number."""
    at = ranks.index(root) if root is not None else 0
    how = collective or request.collective
    return replace(request, group=request.group.part(ranks), collective=how, root=at, pairs=())


def embed_order(request: Request, name: str, make: Callable[[int], Schedule], *, pipelined: bool) -> list[int]:
    """Return all ranks, machine by machine, ordered so that ranks that exchange data are close together.

    Within a machine, pairs of its best ring's order are swapped as long as this speeds up the schedule ``make(n)`` (up
    to 16 ranks, if routes differ); rounds that are *pipelined* overlap.  A root comes first.  Each *name* has its order
    once.
    """

    def find() -> list[int]:
        found, root = rings_by_host(request), request.root if request.collective in ("broadcast", "reduce") else None
        orders: dict[int, list[int]] = {}
        known: dict[tuple[int, ...], list[int]] = {}
        for host, (ranks, _, key) in request.group.taking_part().items():
            along = list(found[host][0].order) if found[host] else [0]
            at = along.index(ranks.index(root)) if root in ranks else 0
            along = along[at:] + along[:at]
            picked = (int(root in ranks), *along, *key)
            if picked not in known:
                inside = subset(request, ranks)
                known[picked] = _improved(inside, along, make, pipelined=pipelined, fixed=root is not None)
            orders[host] = [ranks[i] for i in known[picked]]
        hosts = list(orders)
        if root is not None:
            home = next(i for i, host in enumerate(hosts) if root in orders[host])
            hosts = hosts[home:] + hosts[:home]
        return [rank for host in hosts for rank in orders[host]]

    return request.group.once(("order", name, request.collective, request.root), find)


def _improved(
    inside: Request, order: list[int], make: Callable[[int], Schedule], *, pipelined: bool, fixed: bool
) -> list[int]:
    """Return *order* after swaps that help, *fixed* or not its first rank; few ranks start from each rotation."""
    n = len(order)
    routes = [inside.router.route(a, b) for a, b in combinations(inside.ranks, 2)] if 2 < n <= _IMPROVED_UP_TO else []
    if len({(route.path_class, route.bandwidth_Bps, route.latency_s) for route in routes}) < 2:  # none, or all equal
        return order
    schedule = make(n)
    pairs = {(s.src, s.dst): s.width for step in schedule.rounds for s in step.sends}

    @cache  # searches from different starts meet
    def cost(order: tuple[int, ...]) -> tuple[float, float]:
        nodes = [inside.ranks[i] for i in order]
        route = inside.router.route
        together = sum([w / route(nodes[a], nodes[b]).bandwidth_Bps for (a, b), w in pairs.items()])
        if pipelined:
            return round(overlapped_cost(inside, schedule, nodes)[1], 15), together
        return round(estimate_s(inside, schedule, 1.0, nodes), 15), together

    def improved(order: list[int]) -> tuple[tuple[float, float], list[int]]:
        best = cost(tuple(order))
        better = True
        while better:
            better = False
            for a, b in combinations(range(int(fixed), n), 2):
                order[a], order[b] = order[b], order[a]
                now = cost(tuple(order))
                if now < best:
                    best, better = now, True
                else:
                    order[a], order[b] = order[b], order[a]
        return best, order

    head, rest = (order[:1], order[1:]) if fixed else ([], order)
    starts = [head + rest[k:] + rest[:k] for k in range(len(rest) if n <= _ALL_STARTS_UP_TO else 1)]
    return min((improved(start) for start in starts), key=lambda found: found[0])[1]


def rings_by_host(request: Request) -> dict[int, list[FoundRing]]:
    """Return rings inside each host of two ranks and more, numbered from 0; equal hosts are searched once."""

    def find() -> dict[int, list[FoundRing]]:
        known: dict[tuple[int, ...], tuple[int, list[FoundRing]]] = {}
        rings: dict[int, list[FoundRing]] = {}
        for host, (ranks, first, key) in request.group.taking_part().items():
            inside = subset(request, ranks)
            if key not in known:
                known[key] = first, find_rings(inside.group, both_directions=False)
            origin, found = known[key]
            rings[host] = [_moved(ring, inside, first - origin) for ring in found] if first != origin else found
        return rings

    return request.group.once("rings by host", find)


def _moved(ring: FoundRing, inside: Request, by: int) -> FoundRing:
    """Return *ring* on an equal machine whose node numbers are higher by *by*."""
    links = inside.machine.links

    def moved(route: Route) -> Route:
        if route.transport != "nvlink-relay":
            return inside.router.route(route.src + by, route.dst + by)
        via = next(links[i].dst for i, _ in route.links if links[i].src == route.src)
        again = inside.router.relay(route.src + by, via + by, route.dst + by)
        assert again is not None
        return again

    return replace(ring, routes=tuple(moved(route) for route in ring.routes))
