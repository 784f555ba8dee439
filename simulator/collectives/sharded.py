"""Direct exchange, in which each rank owns an equal shard of the buffer: ``sharded``.

Of equal machines, and of few sets of twins, a few equal flows represent the n (n - 1) of a direct exchange.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import partial
from itertools import product

from simulator.collectives.algorithms import Schedule
from simulator.collectives.algorithms.direct import direct_schedule, neighbour_pairs, send_recv
from simulator.collectives.communicator import Equal
from simulator.collectives.lower import carried_in, lower, memory_s
from simulator.collectives.request import MAX_DIRECT_RANKS, Planned, Request, refuse_too_many
from simulator.network.machine import Machine
from simulator.plan.alike import Twins
from simulator.plan.flow import Carries, FlowData, block
from simulator.plan.plan import Flow, PlanBuilder

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
    """Return flows of *n_bytes* each that represent one from every rank to every other, by up to 64 sets of twins.

    None for more, for several hosts, whose GPUs are dealt to NICs, and where each rank's processor pays for messages.
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
    ways = [each for link in links for each in (link, machine.reverse(link))]
    own = tuple((each.kind, each.count, each.bandwidth_Bps, each.latency_s) for each in ways)
    shared = tuple((machine.capacity_Bps[each.resource], each.resource in machine.half_duplex) for each in ways)
    return node.kind, node.part_name, node.latency_s, links[0].dst, own, shared


_ONE_BY_ONE = 64  # ranks; more are folded where machines are equal
_WITHOUT_ROOT = {  # rounds of each collective without a root
    "all-reduce": ("reduce-scatter", "all-gather"),
    "reduce-scatter": ("reduce-scatter",),
    "all-gather": ("all-gather",),
    "all-to-all": ("all-to-all",),
}


def _direct(request: Request) -> Schedule:
    n = request.n_ranks
    if request.collective == "send-recv":
        return send_recv(n, request.pairs or neighbour_pairs(n))
    return direct_schedule(request.collective, n, request.root)


def _write(builder: PlanBuilder, request: Request) -> None:
    """Add the sends of every rank to every other rank, all at once, each of which adds up its own shard.

    On more than 64 ranks of equal machines, and on more than 256 with few sets of twins, few flows represent all,
    unless the collective has a root.  Otherwise raises Unsuitable beyond 256 ranks, except for send-recv.
    """
    n, size = request.n_ranks, request.size_bytes
    if request.collective in _WITHOUT_ROOT and n > _ONE_BY_ONE:
        equal = Equal.of(request.group)
        flows = list(between_equal(request, equal, size / n)) if equal is not None else None
        if flows is None and n > MAX_DIRECT_RANKS:
            flows = between_twins(request, size / n)
        if flows is not None:
            _plan_folded(builder, request, flows)
            return
    if request.collective != "send-recv":
        refuse_too_many(request)
    own = request.collective in ("all-to-all", "send-recv")  # each rank has a separate buffer
    lower(builder, request, _direct(request), size_bytes=size * (n if own else 1))


def _plan_folded(builder: PlanBuilder, request: Request, flows: list[Flow]) -> None:
    """Add the rounds of the schedule, each with the same *flows* between all ranks."""
    last: list[int] = []
    for number, label in enumerate(_WITHOUT_ROOT[request.collective]):
        last = [builder.transfer(label, flows, after=last, carries=_carries(request, number, flows))]
        if label != "reduce-scatter":
            continue
        names: dict[float, str] = {}  # those whose sums take equally long are as one
        for rank in request.ranks:
            seconds = memory_s(request, rank, request.size_bytes / request.n_ranks * (request.n_ranks + 1))
            names.setdefault(seconds, request.machine.nodes[rank].name)
        add = partial(builder.work, "reduce", after=last)
        last = [add(name, s, stream=f"main:{name}:reduce") for s, name in names.items() if s > 0] or last


def _carries(request: Request, number: int, flows: list[Flow]) -> Carries:
    """Return what the schedule's round *number* carries, in the order in which *flows* stand when expanded."""

    def carried(_repetition: int) -> list[FlowData]:
        schedule = _direct(request)
        step = schedule.rounds[number]
        regions = carried_in(schedule, 0, lambda chunk: block(chunk, schedule.n_chunks), (step,))
        ends = [(request.ranks[send.src], request.ranks[send.dst]) for send in step.sends]
        known = dict(zip(ends, regions, strict=True))
        return [known[each.route.src, each.route.dst] for flow in flows for each in flow.apart()]

    return carried


SHARDED = Planned("sharded", "each GPU adds up one part; all send to all directly", _write)
