"""The collectives of gloo, torch's backend between CPUs: ``gloo``.

All-reduce uses one ring in rank order, in which each rank sends to the previous one.  Each chunk is split into two
segments or more, so that adding overlaps with sending (gloo/allreduce.cc).

Broadcast uses a binomial tree (gloo/broadcast.cc): rank v, counted from the root, receives from v - 2^i and sends to v
+ 2^j for every j > i.  It starts all its sends at once, so they share its link.  With n ranks and link bandwidth B, the
root alone takes ceil(log2 n) S/B; 4 ranks take 3 S/B, where a tree with rounds would take 2 S/B.
"""

from __future__ import annotations

from simulator.collectives.algorithms.ring import ring_all_reduce
from simulator.collectives.lower import host_work, lower
from simulator.collectives.request import Planned, Request
from simulator.plan.flow import WHOLE, FlowData
from simulator.plan.plan import Flow, PlanBuilder


def binomial_children(n: int) -> dict[int, list[int]]:
    """Return the children of each of *n* ranks in a binomial tree, in gloo's order; ranks are counted from the root."""
    children: dict[int, list[int]] = {}
    for rank in range(n):
        first = rank.bit_length()  # the highest bit of its number leads to its parent
        children[rank] = [rank + (1 << i) for i in range(first, n.bit_length()) if rank + (1 << i) < n]
    return children


def _write(builder: PlanBuilder, request: Request) -> None:
    builder.facts["software"] = "gloo"
    if request.collective == "broadcast":
        _broadcast(builder, request)
        return
    nodes = request.ranks[::-1]  # each sends to the rank before it
    builder.rings.append(nodes)
    lower(builder, request, ring_all_reduce(len(nodes)), size_bytes=request.size_bytes, nodes=nodes)


def _broadcast(builder: PlanBuilder, request: Request) -> None:
    n = request.n_ranks
    nodes = [request.ranks[(request.root + rank) % n] for rank in range(n)]
    received: dict[int, int] = {}
    for rank, children in binomial_children(n).items():
        after = [received[rank]] if rank else []
        for child in children:
            flow = Flow(request.router.route(nodes[rank], nodes[child]), request.size_bytes)
            stream = f"rank{child}"  # one stream per send: sends of the same rank do not wait for each other
            received[child] = builder.transfer(
                *("broadcast", [flow]),
                stream=stream,
                after=after,
                carries=lambda _: [FlowData(WHOLE)],
                beside=host_work(request.machine, [(nodes[rank], nodes[child])]),
            )


GLOO = Planned(
    "gloo",
    "what torch's gloo does between CPUs: ring; broadcast down a binomial tree (not among all: name it)",
    _write,
    forms=("all-reduce", "broadcast"),
    cannot="gloo is modelled for all-reduce and broadcast, not for {}; ring does it",
)
