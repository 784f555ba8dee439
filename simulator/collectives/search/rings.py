"""The largest set of rings that a machine's links carry at once, by search (docs/decisions/collectives.md)."""

from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction
from itertools import permutations
from typing import Any, NamedTuple

from simulator.collectives.communicator import Communicator
from simulator.collectives.search import LISTED_UP_TO, LinkGraph, best_cycles, greedy_order, link_graph, separate_chains
from simulator.errors import SimulationError
from simulator.network.fairshare import fair_rates
from simulator.network.machine import near_each_other
from simulator.network.route import Route
from simulator.network.routing import Router
from simulator.records import dataclass, replace, sums_by_key

_ALL_ORDERS_UP_TO = 6
_Lists = dict[int, list[int]]  # ranks or nodes, by host, rank or NIC
_NO_VIAS: Mapping[int, int] = {}


@dataclass(frozen=True, slots=True)
class Ends:
    """Where rings enter and leave a machine: at the NIC's ``nearest`` GPUs alone, the last by a ``lent`` NIC."""

    nearest: bool = True
    lent: bool = True


_ENDS = Ends()


@dataclass(frozen=True, slots=True)
class FoundRing:
    """A directed ring: rank ``order[i]`` sends to ``order[i + 1]`` over ``routes[i]``."""

    order: tuple[int, ...]
    bandwidth_Bps: float
    routes: Sequence[Route]
    kind: str  # "nvlink", "nvlink-relay", "crossbar", "mixed" or "network"
    whole: bool = True  # whether its search was complete


def find_rings(
    group: Communicator, *, both_directions: bool, in_order: bool = False, ends: Ends = _ENDS
) -> list[FoundRing]:
    """Return the fastest rings to run at once, found once per group; *in_order*: of machines, as in NCCL."""
    key = "rings", both_directions, in_order, ends
    return list(group.once(key, lambda: _find(group, both_directions=both_directions, in_order=in_order, ends=ends)))


def _find(group: Communicator, *, both_directions: bool, in_order: bool, ends: Ends) -> list[FoundRing]:
    if group.n_ranks < 2:
        return []
    by_node = sorted(range(group.n_ranks), key=group.ranks.__getitem__)
    if by_node != list(range(group.n_ranks)):
        found = find_rings(group.part(by_node), both_directions=both_directions, in_order=in_order, ends=ends)
        return [replace(ring, order=tuple(by_node[rank] for rank in ring.order)) for ring in found]
    hosts = group.by_host()
    if len(hosts) > 1:
        order = list(hosts) if in_order else near_each_other(group.machine, list(hosts))
        turns = _across(group, order, both_directions, lambda ranks: _chains(group, ranks, ends))
        apart = _across(group, order, both_directions, lambda ranks: _separate_chains(group, ranks))
        return max(turns, apart, key=lambda rings: round(sum(ring.bandwidth_Bps for ring in rings)))
    ranks = tuple(range(group.n_ranks))
    if _is_crossbar(group, ranks):
        return _turned(group, ranks, "crossbar", both_directions)
    graph = link_graph(group.machine, group.ranks)
    packed = _packed(group, graph, both_directions) if graph is not None else []
    if packed and all(ring.kind == "nvlink" for ring in packed):
        return packed
    mixed = _mixed(group, ranks, both_directions)
    best = max(mixed, packed, key=lambda rings: sum(ring.bandwidth_Bps for ring in rings))
    return best if all(ring.whole for ring in packed) else [replace(ring, whole=False) for ring in best]


class _Hops(Sequence[Route]):
    """The routes from each node to the next, looked up on demand; *vias*: those who lend a node their NIC."""

    def __init__(self, router: Router, nodes: Sequence[int], vias: Mapping[int, int]) -> None:
        self._router, self._nodes, self._vias = router, nodes, vias

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, at: int | slice) -> Any:
        places = range(len(self._nodes))[at]
        if isinstance(places, range):
            return [self[place] for place in places]
        src, dst = self._nodes[places], self._nodes[(places + 1) % len(self._nodes)]
        via = self._vias.get(src)
        return self._router.route(src, dst) if via is None else self._router.out_through(src, via, dst)


def _routes(
    group: Communicator, order: Sequence[int], laps: int = 1, vias: Mapping[int, int] = _NO_VIAS
) -> Sequence[Route]:
    hops = _Hops(group.router, [group.ranks[rank] for rank in order], vias)
    return hops if laps > 1 else tuple(hops)


def round_rates(group: Communicator, rings: Sequence[Sequence[Route]], laps: int = 1) -> list[float]:
    """Return the B/s of each ring's slowest hop when all run at once; of *laps* equal hosts one is computed."""
    copies = group.machine.resource_copies

    def on_first_host(resource: int, share: float) -> tuple[int, float]:
        stride = copies.stride(resource)
        if not stride:
            return resource, laps * share
        host = copies.host(resource)
        return resource - (host - group.machine.like(host)) * stride, share

    loads = [route.loads for ring in rings for route in ring[: len(ring) // laps]]
    if laps > 1:
        loads = [tuple([on_first_host(*load) for load in each]) for each in loads]
    rates = iter(fair_rates(loads, [float("inf")] * len(loads), group.machine.capacity_Bps))
    return [min(next(rates) for _ in ring[: len(ring) // laps]) for ring in rings]


def _turned(group: Communicator, order: tuple[int, ...], kind: str, both_directions: bool) -> list[FoundRing]:
    orders = [order, order[:1] + order[:0:-1]] if both_directions and group.n_ranks > 2 else [order]
    routes = [_routes(group, each) for each in orders]
    return [FoundRing(*each, kind) for each in zip(orders, round_rates(group, routes), routes, strict=True)]


def _is_crossbar(group: Communicator, ranks: Sequence[int]) -> bool:
    nodes = [group.ranks[rank] for rank in ranks]
    machine = group.machine
    for a, b in zip(nodes, nodes[1:] + nodes[:1], strict=True):
        route = group.router.direct(a, b)
        if route is None or all(machine.links[i].dst == b for i, _ in route.links):
            return False
    return True


def _mixed(group: Communicator, ranks: tuple[int, ...], both_directions: bool) -> list[FoundRing]:
    nodes, route = group.ranks, group.router.route
    orders = {ranks: None, _tree_order(group, ranks): None}
    if len(ranks) <= LISTED_UP_TO:  # each rank is followed by the remaining one that it reaches fastest
        near = greedy_order(ranks[0], ranks, lambda here, r: (-route(nodes[here], nodes[r]).bandwidth_Bps, r))
        orders[near] = None
    if len(ranks) <= _ALL_ORDERS_UP_TO:
        orders |= {(ranks[0], *rest): None for rest in permutations(ranks[1:]) if len(rest) < 2 or rest[0] < rest[-1]}
    best = max(orders, key=lambda order: round(round_rates(group, [_routes(group, order)])[0], 3))
    return _turned(group, best, "mixed", both_directions)


def _tree_order(group: Communicator, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """Order ranks by the switches above them, so that each link of a tree is crossed once in each direction."""

    def above(rank: int) -> tuple[int, ...]:
        cpu = group.router.nearest_cpu(group.ranks[rank])
        if cpu is None:
            return ()
        route = group.router.route(group.ranks[rank], cpu)
        return tuple(reversed([group.machine.links[i].dst for i, _ in route.links]))

    return tuple(sorted(ranks, key=lambda rank: (sorted(above(rank)), rank)))


def _packed(group: Communicator, graph: LinkGraph, both_directions: bool) -> list[FoundRing]:
    """Return the largest set of rings, each at the speed of one link, that fits into the GPU links at once."""
    nodes, router = group.ranks, group.router
    rank_of = {node: rank for rank, node in enumerate(nodes)}
    best, one_way, whole = group.once("cycles", lambda: best_cycles(nodes, graph))
    found: list[FoundRing] = []
    both = both_directions and len(nodes) > 2
    if not best and one_way is not None:  # it uses links in both directions: no room for its reverse
        best, both = [one_way], False
    for hops in best:
        kind = "nvlink-relay" if any(len(hop) > 2 for hop in hops) else "nvlink"
        for way in [hops, [hop[::-1] for hop in reversed(hops)]] if both else [hops]:  # the first node stays the first
            ranks = tuple(rank_of[hop[0]] for hop in way)
            routes = tuple(_hop_route(router, hop) for hop in way)
            found.append(FoundRing(ranks, graph.unit_Bps, routes, kind, whole))
    if both:  # all of one direction first, then their reverses
        found = found[::2] + found[1::2]
    rates = round_rates(group, [ring.routes for ring in found])  # half-duplex links carry less than their units
    return [replace(ring, bandwidth_Bps=min(rate, graph.unit_Bps)) for ring, rate in zip(found, rates, strict=True)]


def _hop_route(router: Router, hop: Sequence[int]) -> Route:
    """Return the NVLink route of *hop*, two nodes or three with a relay; raises SimulationError if there is none."""
    route = router.direct(*hop) if len(hop) == 2 else router.relay(*hop)
    if route is None:
        ends = " to ".join(router.machine.nodes[node].name for node in hop)
        raise SimulationError(f"a ring has no route from {ends}")
    return route


class _Chain(NamedTuple):
    """A ring's part in one machine: its *ranks* in order; the last one sends through the node *via*, if any."""

    ranks: tuple[int, ...]
    via: int | None = None

    def reversed(self) -> "_Chain":
        """Return the chain in the other direction; the GPU that lends its NIC stays the first."""
        return _Chain(self.ranks[::-1] if self.via is None else self.ranks[:1] + self.ranks[:0:-1], self.via)


def _across(
    group: Communicator, hosts: list[int], both_directions: bool, chains_of: Callable[[list[int]], list[_Chain]]
) -> list[FoundRing]:
    """Return rings that pass each machine in the chains that *chains_of* finds for its ranks."""
    known: dict[tuple[int, ...], tuple[list[int], int, list[_Chain]]] = {}  # by GPUs of equal hosts
    chains: list[list[_Chain]] = []
    for ranks, first, key in (group.taking_part()[host] for host in hosts):
        if key not in known:
            known[key] = ranks, first, chains_of(ranks)
        model, origin, found = known[key]
        here = dict(zip(model, ranks, strict=True))
        chains.append(
            [_Chain(tuple(here[r] for r in c.ranks), None if c.via is None else c.via - origin + first) for c in found]
        )
    laps = len(hosts) if len(known) == 1 else 1
    rings = [list(ring) for ring in zip(*chains, strict=False)]  # as many as the machine with the fewest has
    if not rings:
        return []
    orders = [tuple(rank for chain in ring for rank in chain.ranks) for ring in rings]
    if both_directions and group.n_ranks > 2:
        for ring, order in list(zip(rings, orders, strict=True)):
            back = [chain.reversed() for chain in (ring[0], *ring[:0:-1])]
            turned = [rank for chain in back for rank in chain.ranks]
            at = turned.index(order[0])
            rings.append(back)
            orders.append((*turned[at:], *turned[:at]))
    routes = []
    for ring, order in zip(rings, orders, strict=True):
        vias = {group.ranks[chain.ranks[-1]]: chain.via for chain in ring if chain.via is not None}
        routes.append(_routes(group, order, laps, vias))
    rates = round_rates(group, routes, laps)
    return [FoundRing(*each, "network") for each in zip(orders, rates, routes, strict=True)]


def _chains(group: Communicator, ranks: list[int], ends: Ends) -> list[_Chain]:
    """Return one order of a machine's ranks for each NIC; it enters the machine near that NIC."""
    if len(ranks) == 1:
        return [_Chain(tuple(ranks))]
    inside = group.part(ranks)
    found = find_rings(inside, both_directions=False)[0]
    # On a crossbar any order is a ring; the order of the PCIe tree places GPUs that share a NIC side by side.
    ring = [ranks[i] for i in (_tree_order(inside, found.order) if found.kind == "crossbar" else found.order)]
    near, owners = _nics(group, ranks, nearest=ends.nearest)
    chosen: dict[tuple[int, ...], None] = {}
    entered: dict[int, int] = dict.fromkeys(ranks, 0)
    left: dict[int, int] = dict.fromkeys(ranks, 0)
    turns = [way[i:] + way[:i] for way in (ring, ring[:1] + ring[:0:-1]) for i in range(len(ring))]
    for own in owners.values():
        entering = [t for t in turns if t[0] in own]
        leaving = [t for t in entering if t[-1] in own]
        # GPUs that share a NIC take turns as the ends of chains, so that no PCIe port carries them all.
        best = min(leaving or entering, key=lambda t: entered[t[0]] + left[t[-1]])
        entered[best[0]] += 1
        left[best[-1]] += 1
        chosen[tuple(best)] = None
    chosen = chosen or {tuple(ring): None}  # without any NIC, the router finds another way, or says that there is none
    if not ends.lent or _evenly(chosen, near, owners):
        return [_Chain(chain) for chain in chosen]
    sending = []
    for chain in chosen:  # it sends through its first GPU if the last is farther from the NICs there, with NVLink to it
        first, last = group.ranks[chain[0]], group.ranks[chain[-1]]
        is_far = any(chain[-1] not in owners[nic] for nic in near[chain[0]])
        sending.append(_Chain(chain, first if is_far and group.router.direct(last, first) is not None else None))
    return sending


def _nics(group: Communicator, ranks: list[int], *, nearest: bool) -> tuple[_Lists, _Lists]:
    """Return the NICs near each of *ranks*, and by NIC the ranks *nearest* to it, else all that use it."""
    near = {rank: group.router.nics_near(group.ranks[rank]) for rank in ranks}
    rank_at = {group.ranks[rank]: rank for rank in ranks}
    owners = group.router.owners(list(rank_at))
    if nearest:
        return near, {nic: [rank_at[node] for node in nodes] for nic, nodes in owners.items()}
    return near, {nic: [rank for rank in ranks if nic in near[rank]] for nic in owners}


def _separate_chains(group: Communicator, ranks: list[int]) -> list[_Chain]:
    """Return an order of a machine's ranks for each NIC, no two of which use a link; none where some share it."""
    nodes = [group.ranks[rank] for rank in ranks]
    if not 2 < len(nodes) <= LISTED_UP_TO or _is_crossbar(group, ranks):
        return []
    if any(group.router.direct(a, b) is None for a, b in permutations(nodes, 2)):
        return []
    near, owners = _nics(group, ranks, nearest=True)
    chains = [tuple(ranks[i] for i in order) for order in separate_chains(len(ranks))]
    chosen: dict[int, tuple[int, ...]] = {}
    for nic, own in owners.items():
        entering = [chain for chain in chains if chain[0] in own and chain not in chosen.values()]
        if entering:
            chosen[nic] = entering[0]
    return [_Chain(chain) for chain in chosen.values()] if _evenly(chosen.values(), near, owners) else []


def _evenly(chains: Collection[tuple[int, ...]], near: _Lists, owners: _Lists) -> bool:
    """Return whether each NIC sends as much as it receives if each chain leaves by the NICs of its last rank."""
    if any(last not in owners[nic] for *_, last in chains for nic in near[last]):
        return False
    ends = (end for first, *_, last in chains for end in ((first, 1), (last, -1)))
    balance = sums_by_key((nic, Fraction(sign, len(near[rank]))) for rank, sign in ends for nic in near[rank])
    return not any(balance.values())
