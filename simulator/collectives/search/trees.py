"""Packing of spanning trees into GPU links, for GPUs that no ring spans.

Each tree takes one unit of each of its links in both directions: up to reduce, down to broadcast.  Trees are taken one
by one; each is the maximum spanning tree by the remaining units, so that no link is exhausted early.  (Packing trees
into uneven NVLink graphs: Wang et al., Blink, MLSys 2020.)
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.collectives.communicator import Communicator
from simulator.collectives.search.link_graph import MOST_AT_ONCE, link_graph

__all__ = ["FoundTree", "find_trees"]


@dataclass(frozen=True, slots=True)
class FoundTree:
    """A spanning tree of ranks; ``edges`` are (parent, child), parents before their children."""

    root: int
    edges: tuple[tuple[int, int], ...]
    bandwidth_Bps: float

    @property
    def depth(self) -> int:
        """The number of edges from the root to the farthest rank."""
        level = {self.root: 0}
        for parent, child in self.edges:
            level[child] = level[parent] + 1
        return max(level.values())


def find_trees(group: Communicator) -> list[FoundTree]:
    """Return trees over direct GPU links among the ranks of one machine; empty if no tree spans them."""
    return group.once("trees", lambda: _find(group))


def _find(group: Communicator) -> list[FoundTree]:
    graph = link_graph(group.machine, group.ranks)
    if graph is None or len(group.by_host()) > 1:
        return []
    nodes = group.ranks
    free = {
        (a, b): graph.between(nodes[a], nodes[b])
        for a in range(len(nodes))
        for b in range(a + 1, len(nodes))
        if graph.between(nodes[a], nodes[b])
    }
    trees: list[FoundTree] = []
    while len(trees) < MOST_AT_ONCE:
        edges = _spanning(len(nodes), free)
        if edges is None:
            break
        for edge in edges:
            free[edge] -= 1
        trees.append(_rooted(len(nodes), edges, graph.unit_Bps))
    return trees


def _spanning(n: int, free: dict[tuple[int, int], int]) -> list[tuple[int, int]] | None:
    """Return the maximum spanning tree by remaining units (Kruskal), or None if there is none.

    Edges at ranks with few remaining units come first: a rank with a single link needs it.
    """
    left = [sum(units for edge, units in free.items() if r in edge) for r in range(n)]
    order = sorted((e for e, units in free.items() if units), key=lambda e: (min(left[e[0]], left[e[1]]), -free[e], e))
    parent = list(range(n))

    def top(r: int) -> int:
        while parent[r] != r:
            r = parent[r]
        return r

    chosen = []
    for a, b in order:
        if top(a) != top(b):
            parent[top(a)] = top(b)
            chosen.append((a, b))
    return chosen if len(chosen) == n - 1 else None


def _rooted(n: int, edges: list[tuple[int, int]], unit_Bps: float) -> FoundTree:
    """Return the tree with the root that minimises its depth."""
    near: list[list[int]] = [[] for _ in range(n)]
    for a, b in edges:
        near[a].append(b)
        near[b].append(a)

    def walk(root: int) -> FoundTree:
        seen, out, queue = {root}, [], [root]
        for r in queue:
            for other in sorted(near[r]):
                if other not in seen:
                    seen.add(other)
                    out.append((r, other))
                    queue.append(other)
        return FoundTree(root, tuple(out), unit_Bps)

    return min((walk(root) for root in range(n)), key=lambda tree: (tree.depth, tree.root))
