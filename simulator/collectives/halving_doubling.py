"""Exchanges between pairs at doubling distances: ``halving-doubling``."""

from __future__ import annotations

from collections.abc import Callable
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
        if request.collective not in _SCHEDULES:
            raise Unsuitable(f"halving and doubling cannot do {request.collective}; sharded and ring can")
        known = _SCHEDULES[request.collective]
        order = embed_order(request, self.name, next(iter(known.values())), pipelined=False)
        nodes = [request.ranks[rank] for rank in order]
        size = request.size_bytes
        candidates = {name: make(request.n_ranks) for name, make in known.items()}
        chosen = min(candidates, key=lambda name: estimate_s(request, candidates[name], size, nodes))
        parted = request.collective in ("reduce-scatter", "all-gather")  # chunk i belongs to the rank at position i
        region = (lambda chunk: block(order[chunk], len(order))) if parted else None
        lower(builder, request, candidates[chosen], size_bytes=size, nodes=nodes, region=region)
        builder.facts["algorithm"] = chosen
        return builder.build()


# By collective: its schedules for n ranks, by name, the default first.
_SCHEDULES: dict[str, dict[str, Callable[[int], Schedule]]] = {
    "all-reduce": {
        "halving-doubling": schedules.halving_doubling_all_reduce,
        "recursive doubling": schedules.recursive_doubling_all_reduce,
    },
    "reduce-scatter": {"recursive halving": schedules.halving_doubling_reduce_scatter},
    "all-gather": {"recursive doubling": schedules.halving_doubling_all_gather},
    "broadcast": {"binomial scatter, recursive doubling": schedules.halving_doubling_broadcast},
    "reduce": {"recursive halving, binomial gather": schedules.halving_doubling_reduce},
}
HALVING_DOUBLING = HalvingDoubling()
