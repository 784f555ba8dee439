"""Pipelined binary trees: ``tree`` and ``double-tree``.

Ranks are ordered so that neighbours in a tree are close together (:func:`embed_order`).  The alpha-beta model chooses
the number of chunks.
"""

from __future__ import annotations

from functools import partial

from simulator.collectives.algorithms.binary_tree import tree_schedule
from simulator.collectives.embedding import embed_order
from simulator.collectives.lower import lower, pipeline_chunk_count
from simulator.collectives.request import MAX_RANKS, Planned, Request
from simulator.plan.plan import PlanBuilder


def _write(builder: PlanBuilder, request: Request, *, name: str) -> None:
    make = partial(tree_schedule, request.collective, double=name == "double-tree")
    order = embed_order(request, name, make, pipelined=True)  # the root comes first
    nodes = [request.ranks[rank] for rank in order]
    n_chunks = pipeline_chunk_count(request, partial(make, request.n_ranks), request.size_bytes, nodes)
    lower(builder, request, make(request.n_ranks, n_chunks), size_bytes=request.size_bytes, nodes=nodes)
    builder.facts["chunk_count"] = n_chunks


def _tree(name: str, summary: str) -> Planned:
    forms, cannot = ("all-reduce", "broadcast", "reduce"), "a tree carries whole buffers and cannot do {}; ring can"
    return Planned(name, summary, partial(_write, name=name), MAX_RANKS["many"], forms, cannot)


TREE = _tree("tree", "reduce up and broadcast down a binary tree, pipelined")
DOUBLE_TREE = _tree("double-tree", "two binary trees with half of the data each; no rank is inner in both")
