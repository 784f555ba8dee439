"""The rings of NCCL's channels, as found by its search, as routes over the machine's links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from simulator.collectives.communicator import Communicator
from simulator.collectives.nccl.graph import found_inside
from simulator.collectives.search.rings import Ends, FoundRing, find_rings
from simulator.network.machine import Machine
from simulator.network.route import Route
from simulator.network.routing import Router
from simulator.questions.nccl import Version, has
from simulator.questions.where import NCCL_TODAY

# A hop through a neighbour is a write into the neighbour's memory and a read from there
# (src/transport/p2p.cc, P2P_INTERMEDIATE).  A read request of 16 B (one flit) fetches 64 B, and shares the opposite
# direction with writes; 128 B written take 8 flits of data and one of header (Foley and Danskin, IEEE Micro 37(2),
# 2017).
_ASKING = (16 / 64) / (9 / 8)


def channel_rings(group: Communicator, version: Version = NCCL_TODAY) -> list[FoundRing]:
    """Return the distinct rings of NCCL's channels, with the bandwidth of each ring's channels when all run at once.

    Channels carry equal parts of the data.  Over several machines there is one ring for each NIC.  Before NCCL had its
    search, it ended at any GPU of the machine, and before PXN the last GPU sent by itself.
    """
    if len(group.by_host()) > 1:
        ends = Ends(nearest=has(version, "search"), lent=has(version, "pxn"))
        return find_rings(group, both_directions=False, in_order=True, ends=ends)
    return list(group.once("nccl rings", lambda: _found(group)))


def relays_of(machine: Machine, rings: Sequence[FoundRing]) -> dict[tuple[int, int], int]:
    """Return, for each (source, target) pair of GPUs that *rings* join through a neighbour, that neighbour.

    If rings use different neighbours for a pair, the first one counts.  Both directions use the same neighbour.
    """
    links = machine.links
    found: dict[tuple[int, int], int] = {}
    for route in (route for ring in rings for route in ring.routes if route.transport == "nvlink-relay"):
        via = next(links[i].dst for i, _ in route.links if links[i].src == route.src)
        found.setdefault((route.src, route.dst), via)
        found.setdefault((route.dst, route.src), via)
    return found


def way(router: Router, relays: Mapping[tuple[int, int], int], src: int, dst: int) -> Route:
    """Return NCCL's route between two GPUs: through the neighbour in *relays* if any, else the router's."""
    via = relays.get((src, dst))
    return router.route(src, dst) if via is None else _relayed(router, src, via, dst)


def _found(group: Communicator) -> list[FoundRing]:
    found, by = found_inside(group)
    rank_of = {node: rank for rank, node in enumerate(group.ranks)}
    vias = {(src + by, dst + by): via + by for src, via, dst in found.relayed}
    counted = Counter(tuple(gpu + by for gpu in order) for order in found.orders)
    rings = []
    for order, n in counted.items():
        hops = [*pairwise(order), (order[-1], order[0])]
        routes = tuple(
            _relayed(group.router, a, vias[a, b], b) if (a, b) in vias else group.router.route(a, b) for a, b in hops
        )
        kind = "nvlink-relay" if any(hop in vias for hop in hops) else routes[0].path_class
        rings.append(FoundRing(tuple(rank_of[node] for node in order), float(n), routes, kind, found.whole))
    each_Bps = _channel_rate(group.machine, rings)
    return [replace(ring, bandwidth_Bps=ring.bandwidth_Bps * each_Bps) for ring in rings]


def _channel_rate(machine: Machine, rings: list[FoundRing]) -> float:
    """Return the B/s of each channel if all carry the same; ``bandwidth_Bps`` of a ring is its number of channels."""
    loads: dict[int, float] = {}
    for ring in rings:
        for route in ring.routes:
            for resource, share in route.loads:
                loads[resource] = loads.get(resource, 0.0) + ring.bandwidth_Bps * share
    return min(machine.capacity_Bps[resource] / load for resource, load in loads.items())


def _relayed(router: Router, src: int, via: int, dst: int) -> Route:
    """Return the route through *via*: written there, and read from there."""
    through = router.relay(src, via, dst)
    asking = router.direct(dst, via)
    assert through is not None
    assert asking is not None
    links, loads = dict(through.links), dict(through.loads)
    for shares, more in ((links, asking.links), (loads, asking.loads)):
        for index, share in more:
            shares[index] = shares.get(index, 0.0) + _ASKING * share
    return replace(through, links=tuple(sorted(links.items())), loads=tuple(sorted(loads.items())))
