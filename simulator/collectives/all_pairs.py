"""Equal flows between all pairs of ranks, folded: a few flows represent the n (n - 1) of a direct exchange.

Two symmetries are used.  Equal machines with equal ranks: the flows between two of them represent those between any
two.  Twins, which are ranks with equal links to the same switch and no others: exchanging twins maps the machine and
the exchange to themselves, so all flows from one set of twins to another have the same rate under max-min fairness.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace
from itertools import product

from simulator.collectives.equal import Equal
from simulator.collectives.request import Request
from simulator.network.machine import Link, Machine
from simulator.network.route import Route
from simulator.plan.plan import Flow

__all__ = ["MAX_DIRECT_RANKS", "between_all"]

MAX_DIRECT_RANKS = 256  # the most sets of twins; and ranks that are simulated one by one


def between_all(request: Request, n_bytes: float) -> list[Flow] | None:
    """Return flows of *n_bytes* each that represent one from every rank to every other.

    Return None if the ranks are neither on equal machines nor in at most 256 sets of twins, and if messages cost
    processor time.
    """
    if request.machine.messages.message or request.machine.messages.round:
        return None
    equal = Equal.of(request.group)
    if equal is not None:
        return list(_of_equal(request, equal, n_bytes))
    sets = _twins(request.machine, request.ranks)
    return list(_of_twins(request, sets, n_bytes)) if len(sets) <= MAX_DIRECT_RANKS else None


def _of_equal(request: Request, equal: Equal, n_bytes: float) -> Iterator[Flow]:
    first, second, *_ = request.by_host().values()
    here, there = ([request.ranks[rank] for rank in ranks] for ranks in (first, second))
    route = request.router.route
    for a, b in product(here, here):
        if a != b:
            yield Flow(route(a, b), n_bytes, at=equal.inside_each)
    for a, b in product(here, there):
        yield Flow(route(a, b), n_bytes, at=equal.between_any)


def _twins(machine: Machine, ranks: tuple[int, ...]) -> list[list[int]]:
    """Return the *ranks*' nodes, twins together."""
    sets: dict[Hashable, list[int]] = {}
    for rank in ranks:
        node, links = machine.nodes[rank], machine.outgoing[rank]
        like: Hashable = rank
        if len({link.dst for link in links}) == 1 and rank not in machine.memory_bus:
            own = tuple(_likeness(machine, each) for link in links for each in (link, machine.reverse(link)))
            like = (node.host, node.kind, node.part_name, node.latency_s, links[0].dst, own)
        sets.setdefault(like, []).append(rank)
    return list(sets.values())


def _likeness(machine: Machine, link: Link) -> Hashable:
    capacity_Bps = machine.capacity_Bps[link.resource]
    return link.kind, link.count, link.bandwidth_Bps, link.latency_s, capacity_Bps, link.resource in machine.half_duplex


def _of_twins(request: Request, sets: list[list[int]], n_bytes: float) -> Iterator[Flow]:
    for here, there in product(sets, sets):
        if here is not there:
            route = request.router.route(here[0], there[0])
            yield Flow(_spread(request.machine, route, here, there), n_bytes, len(here) * len(there))
        elif len(here) > 1:
            route = request.router.route(here[0], here[1])
            yield Flow(_spread(request.machine, route, here, here), n_bytes, len(here) * (len(here) - 1))


def _spread(machine: Machine, route: Route, here: list[int], there: list[int]) -> Route:
    """Return *route* with the links of its ends shared equally by the twins *here* and *there*."""
    links: dict[int, list[Link]] = {}  # by number of a link of the ends: the same link of each twin
    for end, twins in ((route.src, here), (route.dst, there)):
        for at, link in enumerate(machine.outgoing[end]):
            alike = [machine.outgoing[twin][at] for twin in twins]
            links[link.index] = alike
            links[machine.reverse(link).index] = [machine.reverse(each) for each in alike]
    resources = {machine.links[number].resource: [each.resource for each in to] for number, to in links.items()}
    return replace(
        route,
        links=_shared(route.links, {number: [each.index for each in to] for number, to in links.items()}),
        loads=_shared(route.loads, resources),
        twins=(tuple(here), tuple(there)),
    )


def _shared(shares: tuple[tuple[int, float], ...], among: dict[int, list[int]]) -> tuple[tuple[int, float], ...]:
    found: dict[int, float] = {}
    for number, share in shares:
        to = among.get(number, [number])
        for each in to:
            found[each] = found.get(each, 0.0) + share / len(to)
    return tuple(sorted(found.items()))
