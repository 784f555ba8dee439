"""Strategies of one schedule: ``gpu0`` (``gpuN``), ``cpu``, ``tree``, ``double-tree``, ``halving-doubling``, ``gloo``.

In trees and among pairs at doubling distances, ranks are ordered so that those that exchange data are close together
(:func:`embed_order`).  The alpha-beta model chooses the number of chunks of a tree, and between halving and doubling
(Rabenseifner) and, for short buffers, recursive doubling of the whole buffer.

gloo, torch's backend between CPUs, runs an all-reduce along one ring in rank order, in which each rank sends to the
previous one.  Each chunk is split into two segments or more, so that adding overlaps with sending (gloo/allreduce.cc).
Its broadcast uses a binomial tree (gloo/broadcast.cc): rank v, counted from the root, receives from v - 2^i and sends
to v + 2^j for every j > i.  It starts all its sends at once, so they share its link.  With n ranks and link bandwidth
B, the root alone takes ceil(log2 n) S/B; 4 ranks take 3 S/B, where a tree with rounds would take 2 S/B.
"""

from __future__ import annotations

from functools import partial

from simulator.collectives.algorithms.binary_tree import tree_schedule
from simulator.collectives.algorithms.direct import star_schedule
from simulator.collectives.algorithms.halving_doubling import halving_doubling_schedule
from simulator.collectives.algorithms.ring import ring_schedule
from simulator.collectives.embedding import embed_order
from simulator.collectives.lower import best_chunk_count, estimate_s, host_work, lower, overlapped_cost
from simulator.collectives.request import MAX_RANKS, Planned, Request, Unsuitable
from simulator.plan.flow import WHOLE, FlowData, block
from simulator.plan.plan import Flow, PlanBuilder

_LIMITS = (
    MAX_RANKS["one"],
    ("all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce"),
    "gathering on one device cannot do {}; sharded and ring can",
)


def gather_on_gpu(name: str) -> Planned:
    """Return ``gpuN``: all send to GPU N (for ``gpu0``, the first that takes part), of a rooted one to the root."""
    number = int(name.removeprefix("gpu"))

    def write(builder: PlanBuilder, request: Request) -> None:
        gpus = request.machine.gpus
        if request.collective in ("broadcast", "reduce"):
            centre = request.root
        elif number >= len(gpus):
            raise Unsuitable(f"there is no GPU {number}; it has GPUs 0 to {len(gpus) - 1}")
        elif gpus[number] in request.ranks:
            centre = request.ranks.index(gpus[number])
        elif name == "gpu0":
            centre = 0
        else:
            raise Unsuitable(f"GPU {number} takes no part")
        schedule = star_schedule(request.collective, request.n_ranks, centre, request.root)
        lower(builder, request, schedule, size_bytes=request.size_bytes)
        builder.facts["runs_as"] = "torch.nn.DataParallel, tf.distribute.ReductionToOneDevice"

    return Planned(name, "gather on one GPU, add there, send back (gpuN: on GPU N)", write, *_LIMITS)


def _write_on_cpu(builder: PlanBuilder, request: Request) -> None:
    cpu = request.router.nearest_cpu(request.ranks[0])
    if cpu is None:
        raise Unsuitable("no CPU is linked to its GPUs")
    schedule = star_schedule(request.collective, request.n_ranks, request.n_ranks, request.root)
    lower(builder, request, schedule, size_bytes=request.size_bytes, nodes=(*request.ranks, cpu))
    builder.facts |= {"runs_as": "MXNet's KVStore local", "centre": request.machine.nodes[cpu].name}


GATHER_ON_CPU = Planned("cpu", "gather on the CPU, add there, send back", _write_on_cpu, *_LIMITS)


def _write_tree(builder: PlanBuilder, request: Request, *, name: str) -> None:
    make = partial(tree_schedule, request.collective, double=name == "double-tree")
    order = embed_order(request, name, make, pipelined=True)  # the root comes first
    nodes = [request.ranks[rank] for rank in order]
    one = make(request.n_ranks)  # with one chunk, each round is one stage; in the steady state all stages are busy
    cost = overlapped_cost(request, one, nodes)
    n_chunks = best_chunk_count(request.size_bytes / one.n_chunks, len(one.rounds) - 1, *cost)
    lower(builder, request, make(request.n_ranks, n_chunks), size_bytes=request.size_bytes, nodes=nodes)
    builder.facts["chunk_count"] = n_chunks


def _tree(name: str, summary: str) -> Planned:
    forms, cannot = ("all-reduce", "broadcast", "reduce"), "a tree carries whole buffers and cannot do {}; ring can"
    return Planned(name, summary, partial(_write_tree, name=name), MAX_RANKS["many"], forms, cannot)


TREE = _tree("tree", "reduce up and broadcast down a binary tree, pipelined")
DOUBLE_TREE = _tree("double-tree", "two binary trees with half of the data each; no rank is inner in both")


# By collective: the names of its schedules, the default first, then that of whole buffers.
_PAIRED = {
    "all-reduce": ("halving-doubling", "recursive doubling"),
    "reduce-scatter": ("recursive halving",),
    "all-gather": ("recursive doubling",),
    "broadcast": ("binomial scatter, recursive doubling",),
    "reduce": ("recursive halving, binomial gather",),
}


def _write_paired(builder: PlanBuilder, request: Request) -> None:
    size, make = request.size_bytes, partial(halving_doubling_schedule, request.collective)
    order = embed_order(request, HALVING_DOUBLING.name, make, pipelined=False)
    nodes = [request.ranks[rank] for rank in order]
    names = _PAIRED[request.collective]
    candidates = {name: make(request.n_ranks, whole=number > 0) for number, name in enumerate(names)}
    chosen = min(candidates, key=lambda name: estimate_s(request, candidates[name], size, nodes))
    parted = request.collective in ("reduce-scatter", "all-gather")  # chunk i belongs to the rank at position i
    region = (lambda chunk: block(order[chunk], len(order))) if parted else None
    lower(builder, request, candidates[chosen], size_bytes=size, nodes=nodes, region=region)
    builder.facts["algorithm"] = chosen


HALVING_DOUBLING = Planned(
    "halving-doubling",
    "pairs at doubling distance exchange halves, then all (Rabenseifner)",
    _write_paired,
    MAX_RANKS["many"],
    _PAIRED,
    "halving and doubling cannot do {}; sharded and ring can",
)


def binomial_children(n: int) -> dict[int, list[int]]:
    """Return the children of each of *n* ranks in a binomial tree, in gloo's order; ranks are counted from the root."""
    bits = {rank: range(rank.bit_length(), n.bit_length()) for rank in range(n)}  # its highest bit leads to its parent
    return {rank: [rank + (1 << i) for i in own if rank + (1 << i) < n] for rank, own in bits.items()}


def _write_gloo(builder: PlanBuilder, request: Request) -> None:
    builder.facts["software"] = "gloo"
    n, size = request.n_ranks, request.size_bytes
    if request.collective == "all-reduce":
        nodes = request.ranks[::-1]  # each sends to the rank before it
        builder.rings.append(nodes)
        lower(builder, request, ring_schedule("all-reduce", n), size_bytes=size, nodes=nodes)
        return
    nodes = tuple(request.ranks[(request.root + rank) % n] for rank in range(n))
    received: dict[int, int] = {}
    send = partial(builder.transfer, "broadcast", carries=lambda _: [FlowData(WHOLE)])
    for rank, child in ((rank, child) for rank, children in binomial_children(n).items() for child in children):
        ends, after = (nodes[rank], nodes[child]), [received[rank]] if rank else []
        work, stream = (
            host_work(request.machine, [ends]),
            f"rank{child}",
        )  # of each send, so that none waits for another
        received[child] = send([Flow(request.router.route(*ends), size)], stream=stream, after=after, beside=work)


GLOO = Planned(
    "gloo",
    "what torch's gloo does between CPUs: ring; broadcast down a binomial tree (not among all: name it)",
    _write_gloo,
    forms=("all-reduce", "broadcast"),
    cannot="gloo is modelled for all-reduce and broadcast, not for {}; ring does it",
)
