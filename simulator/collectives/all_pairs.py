"""Equal flows between all pairs of ranks: a few flows represent the n (n - 1) of a direct exchange."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import product

from simulator.collectives.communicator import Equal
from simulator.collectives.request import Request
from simulator.network.machine import Link, Machine
from simulator.plan.alike import Twins
from simulator.plan.plan import Flow

_MOST_SETS = 64  # of twins; the routes between them are found in seconds


def between_equal(request: Request, equal: Equal, n_bytes: float) -> Iterator[Flow]:
    """Yield flows of *n_bytes* each that represent one from every rank to every other, on *equal* machines."""
    first, second, *_ = request.by_host().values()
    here, there = ([request.ranks[rank] for rank in ranks] for ranks in (first, second))
    for a, b in product(here, here):
        if a != b:
            yield Flow(request.router.route(a, b), n_bytes, at=equal.inside_each)
    for a, b in product(here, there):
        yield Flow(request.router.route(a, b), n_bytes, at=equal.between_any)


def between_twins(request: Request, n_bytes: float) -> list[Flow] | None:
    """Return flows of *n_bytes* each that represent one from every rank to every other, by sets of twins.

    Return None if there are more than 64 sets.  Return None as well for a machine of several hosts, whose GPUs are
    dealt to NICs by number, and where messages cost processor time, which each rank spends separately.
    """
    machine = request.machine
    if machine.n_hosts > 1 or machine.messages.message or machine.messages.round:
        return None
    sets: dict[Hashable, list[int]] = {}
    for rank in request.ranks:
        sets.setdefault(_likeness(machine, rank), []).append(rank)
    if len(sets) > _MOST_SETS:
        return None
    twins = Twins(machine, list(sets.values()))
    return [Flow(request.router.route(*way.pairs[0]), n_bytes, at=way) for way in twins.ways]


def _likeness(machine: Machine, rank: int) -> Hashable:
    """Return what twins have in common; a node that is no other's twin has itself."""
    node, links = machine.nodes[rank], machine.outgoing[rank]
    if len({link.dst for link in links}) != 1 or rank in machine.memory_bus:
        return rank
    own = tuple(_link(machine, each) for link in links for each in (link, machine.reverse(link)))
    return node.kind, node.part_name, node.latency_s, links[0].dst, own


def _link(machine: Machine, link: Link) -> Hashable:
    capacity_Bps = machine.capacity_Bps[link.resource]
    return link.kind, link.count, link.bandwidth_Bps, link.latency_s, capacity_Bps, link.resource in machine.half_duplex
