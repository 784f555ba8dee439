"""Direct exchange, in which each rank owns an equal shard of the buffer: ``sharded``."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.collectives.algorithms import direct as schedules
from simulator.collectives.all_pairs import MAX_DIRECT_RANKS, between_all
from simulator.collectives.lower import lower, memory_s
from simulator.collectives.request import Request, Unsuitable
from simulator.collectives.schedule import Schedule
from simulator.plan.plan import Plan, PlanBuilder

__all__ = ["SHARDED", "Sharded", "refuse_too_many"]

_ONE_BY_ONE = 64  # up to so many ranks each flow is simulated, and says which part of the buffer it carries
_FOLDED = {  # rounds of each collective without a root
    "all-reduce": ("reduce-scatter", "all-gather"),
    "reduce-scatter": ("reduce-scatter",),
    "all-gather": ("all-gather",),
    "all-to-all": ("all-to-all",),
}


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


def _folded(builder: PlanBuilder, request: Request) -> bool:
    """Plan the exchange with few flows for all; return False if it has a root or symmetries do not allow it."""
    rounds = _FOLDED.get(request.collective)
    shard_bytes = request.size_bytes / request.n_ranks
    flows = between_all(request, shard_bytes)
    if rounds is None or flows is None:
        return False
    last: list[int] = []
    for label in rounds:
        last = [builder.transfer(label, flows, after=last)]
        if label == "reduce-scatter":
            last = _added(builder, request, shard_bytes, last)
    return True


def _added(builder: PlanBuilder, request: Request, shard_bytes: float, after: list[int]) -> list[int]:
    """Add the sums of all ranks, those that take equally long as one; return the tasks."""
    names: dict[float, str] = {}
    for rank in request.ranks:
        seconds = memory_s(request, rank, shard_bytes * (request.n_ranks + 1))
        names.setdefault(seconds, request.machine.nodes[rank].name)
    return [
        builder.work("reduce", name, seconds, stream=f"main:{name}:reduce", after=after)
        for seconds, name in names.items()
        if seconds > 0
    ] or after


@dataclass(frozen=True, slots=True)
class Sharded:
    """Every rank sends to every other rank directly, all at once, and adds up its own shard."""

    name: str = "sharded"
    summary: str = "each GPU adds up one part; all send to all directly"

    def plan(self, request: Request) -> Plan:
        """Return the plan, for any collective.

        Raises Unsuitable beyond 256 ranks, except for send-recv, and where equal machines or equal links let few flows
        represent all (not with a root).
        """
        builder = PlanBuilder()
        if request.n_ranks < 2:
            return builder.build()
        if request.collective != "send-recv" and request.n_ranks > _ONE_BY_ONE:
            if _folded(builder, request):
                return builder.build()
            refuse_too_many(request)
        own = request.collective in ("all-to-all", "send-recv")  # each rank has a separate buffer
        size = request.size_bytes * (request.n_ranks if own else 1)
        lower(builder, request, _direct(request), size_bytes=size)
        return builder.build()


SHARDED = Sharded()
