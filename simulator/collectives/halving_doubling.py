"""Exchanges between pairs at doubling distances: ``halving-doubling``."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.collectives.algorithms import halving_doubling as schedules
from simulator.collectives.embedding import embed_order
from simulator.collectives.lower import estimate_s, lower
from simulator.collectives.request import MAX_RANKS, Request, Unsuitable, refuse_beyond
from simulator.collectives.schedule import Schedule
from simulator.plan.flow import block
from simulator.plan.plan import Plan, PlanBuilder


@dataclass(frozen=True, slots=True)
class HalvingDoubling:
    """Recursive halving and doubling; for short buffers, recursive doubling of the whole buffer.

    The alpha-beta model decides between the two for an all-reduce.
    """

    name: str = "halving-doubling"
    summary: str = "pairs at doubling distance exchange halves, then all (Rabenseifner)"

    def plan(self, request: Request) -> Plan:
        """Return the plan.  Raises Unsuitable for all-to-all and send-recv, and beyond 4,096 ranks."""
        builder = PlanBuilder()
        if request.n_ranks < 2:
            return builder.build()
        refuse_beyond(request, MAX_RANKS["many"])
        order = embed_order(request, self.name, lambda n: _candidates(request, n)[0][1], pipelined=False)
        nodes = [request.ranks[rank] for rank in order]
        size = request.size_bytes
        candidates = _candidates(request, request.n_ranks)
        chosen, schedule = min(candidates, key=lambda named: estimate_s(request, named[1], size, nodes))
        parted = request.collective in ("reduce-scatter", "all-gather")  # chunk i belongs to the rank at position i
        region = (lambda chunk: block(order[chunk], len(order))) if parted else None
        lower(builder, request, schedule, size_bytes=size, nodes=nodes, region=region)
        builder.facts["algorithm"] = chosen
        return builder.build()


def _candidates(request: Request, n: int) -> list[tuple[str, Schedule]]:
    """Return (name, schedule) of each schedule of the request's collective for *n* ranks, the default first.

    Raises Unsuitable for all-to-all and send-recv.
    """
    match request.collective:
        case "all-reduce":
            return [
                ("halving-doubling", schedules.halving_doubling_all_reduce(n)),
                ("recursive doubling", schedules.recursive_doubling_all_reduce(n)),
            ]
        case "reduce-scatter":
            return [("recursive halving", schedules.halving_doubling_reduce_scatter(n))]
        case "all-gather":
            return [("recursive doubling", schedules.halving_doubling_all_gather(n))]
        case "broadcast":
            return [("binomial scatter, recursive doubling", schedules.halving_doubling_broadcast(n))]
        case "reduce":
            return [("recursive halving, binomial gather", schedules.halving_doubling_reduce(n))]
    raise Unsuitable(f"halving and doubling cannot do {request.collective}; sharded and ring can")


HALVING_DOUBLING = HalvingDoubling()
