"""Double binary trees: two trees, each with half of the data, each rank inner in at most one.

The second tree is the first mirrored (n even) or turned by one rank (n odd): what is a leaf
in one is inner in the other, so that all links work.  A rank receives at most four half
chunks a round, and an all-reduce of S bytes takes 2S/B in the steady state, where a single
tree takes 3S/B; a broadcast or a reduce takes S/B.  m chunks a tree pass in m + 2D - 1 rounds.
(Sanders, Speck, Traff, Two-tree algorithms for full bandwidth broadcast, reduction and scan,
Parallel Computing 35(12), 2009, section 3.)
"""

from __future__ import annotations

from simulator.collectives.algorithms.binary_tree import Tree, down, in_order_tree, up
from simulator.collectives.algorithms.pipeline import Edge, pipelined
from simulator.collectives.schedule import Schedule

__all__ = ["double_tree_all_reduce", "double_tree_broadcast", "double_tree_reduce", "two_trees"]


def two_trees(n: int) -> tuple[Tree, Tree]:
    """Return two binary trees of *n* ranks of which no rank is inner in both."""
    first = in_order_tree(n)
    names = [n - 1 - r for r in range(n)] if n % 2 == 0 else [(r + 1) % n for r in range(n)]
    return first, first.renamed(names)


def double_tree_all_reduce(n: int, n_chunks: int = 1) -> Schedule:
    """Return the all-reduce over both trees, *n_chunks* chunks a tree."""
    trees = two_trees(n)
    depth = trees[0].depth
    ways = [up(tree, depth, part) + down(tree, depth, part) for part, tree in enumerate(trees)]
    return pipelined(n, _beside(*ways), n_chunks, n_parts=2, label="double tree")


def double_tree_broadcast(n: int, n_chunks: int = 1, root: int = 0) -> Schedule:
    """Return the broadcast in which *root* feeds the roots of two trees of the other ranks."""
    others = _others(n, root)
    ways = []
    for part, tree in enumerate(two_trees(n - 1)):
        feed = [Edge(root, others[tree.root], part=part)]
        ways.append([feed, *_named(down(tree, tree.depth, part), others)])
    return pipelined(n, _beside(*ways), n_chunks, n_parts=2, label="broadcast")


def double_tree_reduce(n: int, n_chunks: int = 1, root: int = 0) -> Schedule:
    """Return the reduce in which the roots of two trees of the other ranks send to *root*."""
    others = _others(n, root)
    ways = []
    for part, tree in enumerate(two_trees(n - 1)):
        last = [Edge(others[tree.root], root, reduce=True, part=part)]
        ways.append([*_named(up(tree, tree.depth, part), others), last])
    return pipelined(n, _beside(*ways), n_chunks, n_parts=2, label="reduce")


def _others(n: int, root: int) -> list[int]:
    return [(root + 1 + r) % n for r in range(n - 1)]


def _named(stages: list[list[Edge]], names: list[int]) -> list[list[Edge]]:
    return [[Edge(names[e.src], names[e.dst], e.reduce, e.part) for e in stage] for stage in stages]


def _beside(first: list[list[Edge]], second: list[list[Edge]]) -> list[list[Edge]]:
    return [a + b for a, b in zip(first, second, strict=True)]
