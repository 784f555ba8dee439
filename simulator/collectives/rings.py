"""Rings: ``ring``, ``single-ring``, ``bidirectional-ring``, ``multi-ring`` and ``naive-ring``.

The rings are found by a search in the link graph.  Each runs on its own stream; the bytes are split in proportion to
the bandwidths that the rings reach when all run at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Literal

from simulator.collectives.algorithms import Schedule
from simulator.collectives.algorithms.direct import neighbour_pairs, pairwise_all_to_all, send_recv
from simulator.collectives.algorithms.ring import ring_schedule
from simulator.collectives.communicator import Communicator, Equal
from simulator.collectives.lower import best_chunk_count, carried_in, lower
from simulator.collectives.request import MAX_RANKS, Planned, Request, refuse_beyond, refuse_too_many
from simulator.collectives.search import say_ended
from simulator.collectives.search.rings import FoundRing, find_rings, round_rates
from simulator.network.route import Route
from simulator.plan.flow import FlowData, Region, block, cut, joined_regions
from simulator.plan.plan import Flow, PlanBuilder
from simulator.records import replace

# The label of a ring's rounds, and the number of passes of n - 1 rounds each.
_ROUNDS: dict[str, tuple[str, int]] = {
    "all-reduce": ("reduce-scatter", 2),
    "reduce-scatter": ("reduce-scatter", 1),
    "all-gather": ("all-gather", 1),
}


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
    """Add the request's collective over *rings* that run at once, ``ring<i>``; return the last task of each.

    Broadcast and reduce are cut into *n_chunks* on each ring, by default as the alpha-beta model finds best.  Bytes are
    split in proportion to the rings' bandwidths, so rings with equal numbers of chunks stay in step.  *blocks*: the
    part of the buffer that each rank of a sharded collective starts or ends with, of which each ring carries its
    fraction. *one_way*: all rings pass through the machines in the same order.
    """
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
    found = list(carried_in(schedule, repetition, partial(region, schedule.n_chunks)))
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


def _write(builder: PlanBuilder, request: Request, *, directions: Literal[1, 2] = 1, single: bool = False) -> None:
    """Add the chunks that travel around the rings found in the link graph, or around the fastest alone (*single*).

    *directions*: 2 with half of the bytes each way.  All-to-all is pairwise and send-recv is direct; neither uses
    rings.  Raises Unsuitable beyond 16,384 ranks (8,192 in both directions), and beyond 256 ranks for all-to-all.
    """
    n = request.n_ranks
    if request.collective in ("send-recv", "all-to-all"):
        if request.collective == "all-to-all":
            refuse_too_many(request)
            schedule = pairwise_all_to_all(n)
        else:
            schedule = send_recv(n, request.pairs or neighbour_pairs(n))
        lower(builder, request, schedule, size_bytes=n * request.size_bytes)
        return
    refuse_beyond(request, MAX_RANKS["one" if directions == 1 else "two"])
    rings = find_rings(request.group, both_directions=directions == 2)
    if single:
        rings = [_fastest(request, rings)]
    add_rings(builder, request, rings, size_bytes=request.size_bytes, one_way=directions == 1)
    builder.facts["ring_count"] = len(rings)


def _write_naive(builder: PlanBuilder, request: Request) -> None:
    ring = _fastest(request, find_rings(request.group, both_directions=False))
    say_ended(builder.notes, [ring.whole])
    schedule = ring_schedule(request.collective, request.n_ranks, root=ring.order.index(request.root), naive=True)
    _lowered(builder, request, ring, schedule, request.size_bytes, "ring0")


_passes = "pass the whole buffer on from GPU to GPU; one link works at a time"
_limits = (
    MAX_RANKS["one"],
    ("all-reduce", "broadcast", "reduce"),
    "it passes whole buffers on and cannot do {}; ring can",
)
NAIVE_RING = Planned("naive-ring", _passes, _write_naive, *_limits)
_both_ways = partial(_write, directions=2)
RING = Planned("ring", "chunks go round all disjoint rings of the link graph, one direction", _write)
SINGLE_RING = Planned("single-ring", "chunks go round the fastest ring alone", partial(_write, single=True))
BIDIRECTIONAL_RING = Planned("bidirectional-ring", "as ring, half of the bytes in each direction", _both_ways)
# A double link counts as two rings, so both directions of all rings cover every directed ring.
MULTI_RING = Planned("multi-ring", "every directed ring of the link graph is a channel", _both_ways)
