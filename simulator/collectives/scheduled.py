"""Strategies of one schedule: ``gpu0``, ``cpu``, trees, ``sharded``, ``gloo`` ... (docs/decisions/collectives.md)."""

from collections.abc import Hashable, Iterator
from functools import partial
from itertools import product

from simulator.collectives import schedules
from simulator.collectives.communicator import MAX_DIRECT_RANKS, Equal, Request, Unsuitable
from simulator.collectives.lower import best_chunk_count, carried_in, estimate_s, host_work, lower, overlapped_cost
from simulator.collectives.rings import embed_order
from simulator.collectives.schedules import tree_schedule
from simulator.network.machine import Machine
from simulator.plan.flow import WHOLE, Carries, FlowData, Twins, block
from simulator.plan.plan import Flow, PlanBuilder
from simulator.records import lists_by_key, own_data


def write_on_gpu(builder: PlanBuilder, request: Request, number: int) -> None:
    """Add ``gpuN``: all send to GPU N (of 0, the first that takes part), of a rooted collective to the root."""
    gpus = request.machine.gpus
    if request.collective in ("broadcast", "reduce"):
        centre = request.root
    elif number >= len(gpus):
        raise Unsuitable(f"there is no GPU {number}; it has GPUs 0 to {len(gpus) - 1}")
    elif gpus[number] in request.ranks:
        centre = request.ranks.index(gpus[number])
    elif number == 0:
        centre = 0
    else:
        raise Unsuitable(f"GPU {number} takes no part")
    schedule = schedules.star_schedule(request.collective, request.n_ranks, centre, request.root)
    lower(builder, request, schedule, size_bytes=request.size_bytes)
    builder.facts["runs_as"] = "torch.nn.DataParallel, tf.distribute.ReductionToOneDevice"


def write_on_cpu(builder: PlanBuilder, request: Request) -> None:
    """Add ``cpu``: all send to the CPU nearest to the first GPU; raises Unsuitable without any."""
    cpu = request.router.nearest_cpu(request.ranks[0])
    if cpu is None:
        raise Unsuitable("no CPU is linked to its GPUs")
    schedule = schedules.star_schedule(request.collective, request.n_ranks, request.n_ranks, request.root)
    lower(builder, request, schedule, size_bytes=request.size_bytes, nodes=(*request.ranks, cpu))
    builder.facts |= {"runs_as": "MXNet's KVStore local", "centre": request.machine.nodes[cpu].name}


def write_tree(builder: PlanBuilder, request: Request, *, double: bool = False) -> None:
    """Add a tree or two, cut into the chunks that are fastest."""
    name, make = "double-tree" if double else "tree", partial(tree_schedule, request.collective, double=double)
    order = embed_order(request, name, make, pipelined=True)  # the root comes first
    nodes = [request.ranks[rank] for rank in order]
    one = make(request.n_ranks)  # with one chunk, each round is one stage; in the steady state all stages are busy
    cost = overlapped_cost(request, one, nodes)
    n_chunks = best_chunk_count(request.size_bytes / one.n_chunks, len(one.rounds) - 1, *cost)
    lower(builder, request, make(request.n_ranks, n_chunks), size_bytes=request.size_bytes, nodes=nodes)
    builder.facts["chunk_count"] = n_chunks


# By collective: the names of its schedules, the default first, then that of whole buffers.
_PAIRED = own_data("simulator.collectives", "forms.json")["halving-doubling"]


def write_paired(builder: PlanBuilder, request: Request) -> None:
    """Add ``halving-doubling`` by that of its schedules which is faster."""
    size, make = request.size_bytes, partial(schedules.halving_doubling_schedule, request.collective)
    order = embed_order(request, "halving-doubling", make, pipelined=False)
    nodes = [request.ranks[rank] for rank in order]
    names = _PAIRED[request.collective]
    candidates = {each: make(request.n_ranks, whole=number > 0) for number, each in enumerate(names)}
    chosen = min(candidates, key=lambda each: estimate_s(request, candidates[each], size, nodes))
    parted = request.collective in ("reduce-scatter", "all-gather")  # chunk i belongs to the rank at position i
    region = (lambda chunk: block(order[chunk], len(order))) if parted else None
    lower(builder, request, candidates[chosen], size_bytes=size, nodes=nodes, region=region)
    builder.facts["algorithm"] = chosen


def binomial_children(n: int) -> dict[int, list[int]]:
    """Return the children of each of *n* ranks in a binomial tree, in gloo's order; ranks are counted from the root."""
    bits = {rank: range(rank.bit_length(), n.bit_length()) for rank in range(n)}  # its highest bit leads to its parent
    return {rank: [rank + (1 << i) for i in own if rank + (1 << i) < n] for rank, own in bits.items()}


def write_gloo(builder: PlanBuilder, request: Request) -> None:
    """Add what gloo does between hosts: a ring, or a broadcast along a binomial tree."""
    builder.facts["software"] = "gloo"
    n, size = request.n_ranks, request.size_bytes
    if request.collective == "all-reduce":
        nodes = request.ranks[::-1]  # each sends to the rank before it
        builder.rings.append(nodes)
        lower(builder, request, schedules.ring_schedule("all-reduce", n), size_bytes=size, nodes=nodes)
        return
    nodes = tuple(request.ranks[(request.root + rank) % n] for rank in range(n))
    received: dict[int, int] = {}
    send = partial(builder.transfer, "broadcast", carries=lambda _: [FlowData(WHOLE)])
    for rank, child in ((rank, child) for rank, children in binomial_children(n).items() for child in children):
        ends, after = (nodes[rank], nodes[child]), [received[rank]] if rank else []
        work, stream = host_work(request.machine, [ends]), f"rank{child}"  # of each send, so that none waits
        received[child] = send([Flow(request.router.route(*ends), size)], stream=stream, after=after, beside=work)


_MOST_SETS = 64  # of twins; the routes between them are found in seconds


def between_equal(request: Request, equal: Equal, n_bytes: float) -> Iterator[Flow]:
    """Yield flows of *n_bytes* each that represent one from every rank to every other, on *equal* machines."""
    first, second, *_ = request.group.by_host().values()
    here, there = ([request.ranks[rank] for rank in ranks] for ranks in (first, second))
    for a, b in product(here, here):
        if a != b:
            yield Flow(request.router.route(a, b), n_bytes, at=equal.inside_each)
    for a, b in product(here, there):
        yield Flow(request.router.route(a, b), n_bytes, at=equal.between_any)


def between_twins(request: Request, n_bytes: float) -> list[Flow] | None:
    """Return flows of *n_bytes* between sets of twins for all ranks; None for many sets or hosts."""
    machine = request.machine
    if machine.n_hosts > 1 or machine.messages.message or machine.messages.round:
        return None
    sets = lists_by_key((_likeness(machine, rank), rank) for rank in request.ranks)
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
_ALONE = "reduce-scatter", "all-gather", "all-to-all"
_WITHOUT_ROOT = {"all-reduce": _ALONE[:2], **{each: (each,) for each in _ALONE}}  # rounds of each collective


def _direct(request: Request) -> schedules.Schedule:
    n = request.n_ranks
    if request.collective == "send-recv":
        return schedules.send_recv(n, request.pairs or schedules.neighbour_pairs(n))
    return schedules.direct_schedule(request.collective, n, request.root)


def write_direct(builder: PlanBuilder, request: Request) -> None:
    """Add the sends of every rank to every other, all at once, of few flows for many equal ranks; or Unsuitable."""
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
        request.refuse_too_many()
    own = request.collective in ("all-to-all", "send-recv")  # each rank has a separate buffer
    lower(builder, request, _direct(request), size_bytes=size * (n if own else 1))


def _plan_folded(builder: PlanBuilder, request: Request, flows: list[Flow]) -> None:
    last: list[int] = []
    for number, label in enumerate(_WITHOUT_ROOT[request.collective]):
        last = [builder.transfer(label, flows, after=last, carries=_carries(request, number, flows))]
        if label != "reduce-scatter":
            continue
        names: dict[float, str] = {}  # those whose sums take equally long are as one
        for rank in request.ranks:
            seconds = request.memory_s(rank, request.size_bytes / request.n_ranks * (request.n_ranks + 1))
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
