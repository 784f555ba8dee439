"""The strategies ``ring``, ``single-ring``, ``multi-ring`` ... (docs/decisions/collectives.md)."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache, partial
from itertools import combinations
from math import inf

from simulator.collectives.communicator import MAX_RANKS, Communicator, Equal, Request
from simulator.collectives.lower import best_chunk_count, carried_in, estimate_s, lower, overlapped_cost
from simulator.collectives.schedules import Schedule, neighbour_pairs, pairwise_all_to_all, ring_schedule, send_recv
from simulator.collectives.search import say_ended
from simulator.collectives.search.rings import FoundRing, find_rings, round_rates
from simulator.network.route import Route
from simulator.plan.flow import FlowData, Region, block, cut, joined_regions
from simulator.plan.plan import Flow, PlanBuilder
from simulator.records import replace
from simulator.workload import Collective

_IMPROVED_UP_TO = 16  # ranks per machine
_ALL_STARTS_UP_TO = 8
_ROUNDING = 1e-15  # of the seconds of an order


def subset(
    request: Request, ranks: list[int], *, collective: Collective | None = None, root: int | None = None
) -> Request:
    """Return *request* restricted to some of its *ranks*, renumbered from 0; *root* is an old rank number."""
    at = ranks.index(root) if root is not None else 0
    how = collective or request.collective
    return replace(request, group=request.group.part(ranks), collective=how, root=at, pairs=())


def embed_order(request: Request, name: str, make: Callable[[int], Schedule], *, pipelined: bool) -> list[int]:
    """Return all ranks, by machine, those that exchange close together, the root first; found once for each *name*."""

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
    def cost(order: tuple[int, ...], best: float) -> tuple[float, float]:
        nodes, route, most = [inside.ranks[i] for i in order], inside.router.route, best + _ROUNDING
        if pipelined:
            _, whole = overlapped_cost(inside, schedule, nodes, most)
        else:
            whole = estimate_s(inside, schedule, 1.0, nodes, most)
        if whole > most:
            return whole, inf
        return round(whole, 15), sum([w / route(nodes[a], nodes[b]).bandwidth_Bps for (a, b), w in pairs.items()])

    def improved(order: list[int]) -> tuple[tuple[float, float], list[int]]:
        best = cost(tuple(order), inf)
        better = True
        while better:
            better = False
            for a, b in combinations(range(int(fixed), n), 2):
                order[a], order[b] = order[b], order[a]
                now = cost(tuple(order), best[0])
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
    links = inside.machine.links

    def moved(route: Route) -> Route:
        if route.transport != "nvlink-relay":
            return inside.router.route(route.src + by, route.dst + by)
        via = next(links[i].dst for i, _ in route.links if links[i].src == route.src)
        again = inside.router.relay(route.src + by, via + by, route.dst + by)
        assert again is not None
        return again

    return replace(ring, routes=tuple(moved(route) for route in ring.routes))


# The label of a ring's rounds, and the number of passes of n - 1 rounds each.
_ROUNDS = {"all-reduce": ("reduce-scatter", 2), **{op: (op, 1) for op in ("reduce-scatter", "all-gather")}}


def add_rings(
    builder: PlanBuilder,
    request: Request,
    rings: Sequence[FoundRing],
    *,
    size_bytes: float,
    n_chunks: int | None = None,
    blocks: Callable[[int], Region] | None = None,
    one_way: bool = True,
) -> list[int]:
    """Add the collective over *rings* at once, bytes by their rates; return the last tasks.  *blocks*: shards."""
    say_ended(builder.notes, [ring.whole for ring in rings])
    total_Bps = sum(ring.bandwidth_Bps for ring in rings)
    if n_chunks is None:
        latency_s = max(route.latency_s for ring in rings for route in first_lap(request.group, ring))
        n_chunks = best_chunk_count(size_bytes, request.n_ranks - 2, latency_s, 1 / total_Bps)
    equal = Equal.of(request.group) if one_way and request.collective in _ROUNDS else None
    of_rank = blocks or (lambda rank: block(rank, request.n_ranks))
    ends = []
    passed_Bps = 0.0
    for i, ring in enumerate(rings):
        share = size_bytes * ring.bandwidth_Bps / total_Bps
        low, high = Fraction(passed_Bps / total_Bps), Fraction((passed_Bps + ring.bandwidth_Bps) / total_Bps)
        passed_Bps += ring.bandwidth_Bps
        region = partial(_region, ring, of_rank, (low, high if i < len(rings) - 1 else Fraction(1)))
        if equal is None:
            schedule, stream = _schedule(request, ring, n_chunks), f"ring{i}"
            ends.append(_lowered(builder, request, ring, schedule, share, stream, partial(region, schedule.n_chunks)))
            continue
        lap = first_lap(request.group, ring)  # its hops represent those through all machines
        label, laps = _ROUNDS[request.collective]
        builder.rings.append(request.group.nodes_along(ring.order))
        ways = [equal.within] * (len(lap) - 1) + [equal.onward]
        flows = [Flow(route, share / request.n_ranks, at=way) for route, way in zip(lap, ways, strict=True)]
        send = partial(builder.transfer, label, flows, stream=f"ring{i}", repeat=laps * (request.n_ranks - 1))
        ends.append(send(carries=partial(_carried, request, ring, len(lap), region)))
    return ends


def first_lap(group: Communicator, ring: FoundRing) -> Sequence[Route]:
    """Return the routes of *ring* through the first of several equal machines; all routes if machines differ."""
    return ring.routes[: len(ring.routes) // max(1, len(group.equal_hosts()))]


def _carried(
    request: Request, ring: FoundRing, lap: int, region: Callable[[int, int], Region], repetition: int
) -> list[FlowData]:
    """Return what a round on *ring* carries: over the first hop of each *lap* through a machine, then the second."""
    schedule = _schedule(request, ring)
    found = carried_in(schedule, repetition, partial(region, schedule.n_chunks))
    return [each for place in range(lap) for each in found[place::lap]]


def _region(
    ring: FoundRing, of_rank: Callable[[int], Region], bounds: tuple[Fraction, Fraction], n_chunks: int, chunk: int
) -> Region:
    """Return the bytes of a *chunk* on *ring*, which carries the part in *bounds* of each rank's block."""
    if n_chunks == len(ring.order):  # chunk i belongs to the rank at position i
        return cut(of_rank(ring.order[chunk]), *bounds)
    share = cut(joined_regions(of_rank(rank) for rank in range(len(ring.order))), *bounds)
    return cut(share, Fraction(chunk, n_chunks), Fraction(chunk + 1, n_chunks))


def _schedule(request: Request, ring: FoundRing, n_chunks: int = 1) -> Schedule:
    return ring_schedule(request.collective, request.n_ranks, n_chunks, ring.order.index(request.root))


def _fastest(request: Request, rings: Sequence[FoundRing]) -> FoundRing:
    """Return the ring that is fastest when it runs alone, with that bandwidth (doubled on a double link)."""
    alone = [replace(ring, bandwidth_Bps=round_rates(request.group, [ring.routes])[0]) for ring in rings]
    return max(alone, key=lambda ring: ring.bandwidth_Bps)


def _lowered(
    builder: PlanBuilder,
    request: Request,
    ring: FoundRing,
    schedule: Schedule,
    size_bytes: float,
    stream: str,
    region: Callable[[int], Region] | None = None,
) -> int:
    nodes = request.group.nodes_along(ring.order)
    hops = {(route.src, route.dst): route for route in ring.routes}
    builder.rings.append(nodes)
    on_ring = partial(lower, nodes=nodes, stream=stream, route=lambda src, dst: hops[src, dst], region=region)
    return on_ring(builder, request, schedule, size_bytes=size_bytes)


def write_rings(builder: PlanBuilder, request: Request, *, both: bool = False, fastest: bool = False) -> None:
    """Add the chunks that travel in one direction or *both* around all rings, or the *fastest*; raises Unsuitable.

    A double link counts as two rings, so both directions of all rings cover every directed ring.
    """
    n = request.n_ranks
    if request.collective in ("send-recv", "all-to-all"):
        if request.collective == "all-to-all":
            request.refuse_too_many()
            schedule = pairwise_all_to_all(n)
        else:
            schedule = send_recv(n, request.pairs or neighbour_pairs(n))
        lower(builder, request, schedule, size_bytes=n * request.size_bytes)
        return
    request.refuse_beyond(MAX_RANKS["two" if both else "one"])
    rings = find_rings(request.group, both_directions=both)
    if fastest:
        rings = [_fastest(request, rings)]
    add_rings(builder, request, rings, size_bytes=request.size_bytes, one_way=not both)
    builder.facts["ring_count"] = len(rings)


def write_naive(builder: PlanBuilder, request: Request) -> None:
    """Add the passes of whole buffers around the fastest ring."""
    ring = _fastest(request, find_rings(request.group, both_directions=False))
    say_ended(builder.notes, [ring.whole])
    schedule = ring_schedule(request.collective, request.n_ranks, root=ring.order.index(request.root), naive=True)
    _lowered(builder, request, ring, schedule, request.size_bytes, "ring0")
