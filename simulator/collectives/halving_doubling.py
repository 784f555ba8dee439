"""Exchanges between pairs at doubling distances: ``halving-doubling``.

Recursive halving and doubling; for short buffers, recursive doubling of the whole buffer.  The alpha-beta model decides
between the two for an all-reduce.
"""

from __future__ import annotations

from collections.abc import Callable

from simulator.collectives.algorithms import Schedule
from simulator.collectives.algorithms import halving_doubling as schedules
from simulator.collectives.embedding import embed_order
from simulator.collectives.lower import estimate_s, lower
from simulator.collectives.request import MAX_RANKS, Planned, Request
from simulator.plan.flow import block
from simulator.plan.plan import PlanBuilder

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


def _write(builder: PlanBuilder, request: Request) -> None:
    known = _SCHEDULES[request.collective]
    order = embed_order(request, HALVING_DOUBLING.name, next(iter(known.values())), pipelined=False)
    nodes = [request.ranks[rank] for rank in order]
    size = request.size_bytes
    candidates = {name: make(request.n_ranks) for name, make in known.items()}
    chosen = min(candidates, key=lambda name: estimate_s(request, candidates[name], size, nodes))
    parted = request.collective in ("reduce-scatter", "all-gather")  # chunk i belongs to the rank at position i
    region = (lambda chunk: block(order[chunk], len(order))) if parted else None
    lower(builder, request, candidates[chosen], size_bytes=size, nodes=nodes, region=region)
    builder.facts["algorithm"] = chosen


HALVING_DOUBLING = Planned(
    "halving-doubling",
    "pairs at doubling distance exchange halves, then all (Rabenseifner)",
    _write,
    MAX_RANKS["many"],
    _SCHEDULES,
    "halving and doubling cannot do {}; sharded and ring can",
)
