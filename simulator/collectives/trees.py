"""Pipelined binary trees: ``tree`` and ``double-tree``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulator.collectives.algorithms import binary_tree as schedules
from simulator.collectives.embedding import embed_order
from simulator.collectives.lower import lower, pipeline_chunk_count
from simulator.collectives.request import MAX_RANKS, Request, Unsuitable, refuse_beyond
from simulator.collectives.schedule import Schedule
from simulator.plan.plan import Plan, PlanBuilder


@dataclass(frozen=True, slots=True)
class TreeStrategy:
    """Reduce up and broadcast down one binary tree, or two trees with half of the data each.

    Ranks are ordered so that neighbours in the tree are close together (:func:`embed_order`).  The alpha-beta model
    chooses the number of chunks.
    """

    name: str
    summary: str
    all_reduce: Callable[[int, int], Schedule]
    broadcast: Callable[[int, int, int], Schedule]
    reduce: Callable[[int, int, int], Schedule]

    def plan(self, request: Request) -> Plan:
        """Return the plan.

        Raises Unsuitable for collectives other than all-reduce, broadcast and reduce, and beyond 4,096 ranks.
        """
        builder = PlanBuilder()
        n = request.n_ranks
        if n < 2:
            return builder.build()
        refuse_beyond(request, MAX_RANKS["many"])
        if request.collective not in ("all-reduce", "broadcast", "reduce"):
            raise Unsuitable(f"a tree carries whole buffers and cannot do {request.collective}; ring can")

        def make(n: int, n_chunks: int = 1) -> Schedule:
            if request.collective == "all-reduce":
                return self.all_reduce(n, n_chunks)
            return (self.broadcast if request.collective == "broadcast" else self.reduce)(n, n_chunks, 0)

        order = embed_order(request, self.name, make, pipelined=True)  # the root comes first
        nodes = [request.ranks[rank] for rank in order]
        n_chunks = pipeline_chunk_count(request, lambda m: make(n, m), request.size_bytes, nodes)
        lower(builder, request, make(n, n_chunks), size_bytes=request.size_bytes, nodes=nodes)
        builder.facts["chunk_count"] = n_chunks
        return builder.build()


TREE = TreeStrategy(
    "tree",
    "reduce up and broadcast down a binary tree, pipelined",
    schedules.tree_all_reduce,
    schedules.tree_broadcast,
    schedules.tree_reduce,
)
DOUBLE_TREE = TreeStrategy(
    "double-tree",
    "two binary trees with half of the data each; no rank is inner in both",
    schedules.double_tree_all_reduce,
    schedules.double_tree_broadcast,
    schedules.double_tree_reduce,
)
