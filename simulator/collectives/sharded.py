"""Direct exchange, in which each rank owns an equal shard of the buffer: ``sharded``."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.collectives.algorithms import direct as schedules
from simulator.collectives.lower import lower
from simulator.collectives.request import Request, Unsuitable
from simulator.collectives.schedule import Schedule
from simulator.plan.plan import Plan, PlanBuilder

__all__ = ["MAX_DIRECT_RANKS", "SHARDED", "Sharded", "refuse_too_many"]

MAX_DIRECT_RANKS = 256


def refuse_too_many(request: Request) -> None:
    """Raise :class:`Unsuitable` if a flow for each pair of ranks would need too much memory."""
    if request.n_ranks > MAX_DIRECT_RANKS:
        most = f"more than is simulated (up to {MAX_DIRECT_RANKS} ranks)"
        raise Unsuitable(f"a flow between any two of {request.n_ranks} ranks is {most}")


def _direct(request: Request) -> Schedule:
    n = request.n_ranks
    match request.collective:
        case "all-reduce":
            return schedules.direct_all_reduce(n)
        case "reduce-scatter":
            return schedules.direct_reduce_scatter(n)
        case "all-gather":
            return schedules.direct_all_gather(n)
        case "broadcast":
            return schedules.direct_broadcast(n, request.root)
        case "reduce":
            return schedules.direct_reduce(n, request.root)
        case "all-to-all":
            return schedules.direct_all_to_all(n)
        case "send-recv":
            return schedules.send_recv(n, request.pairs or schedules.neighbour_pairs(n))


@dataclass(frozen=True, slots=True)
class Sharded:
    """Every rank sends to every other rank directly, all at once, and adds up its own shard."""

    name: str = "sharded"
    summary: str = "each GPU adds up one part; all send to all directly"

    def plan(self, request: Request) -> Plan:
        """Return the plan, for any collective.  Raises Unsuitable beyond 256 ranks, except for send-recv."""
        builder = PlanBuilder()
        if request.n_ranks < 2:
            return builder.build()
        if request.collective != "send-recv":
            refuse_too_many(request)
        own = request.collective in ("all-to-all", "send-recv")  # each rank has a separate buffer
        size = request.size_bytes * (request.n_ranks if own else 1)
        lower(builder, request, _direct(request), size_bytes=size)
        return builder.build()


SHARDED = Sharded()
