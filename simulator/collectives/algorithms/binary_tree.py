"""Binary trees: chunks flow up to the root, which adds, and down again at the same time.

The tree is numbered in order: rank i - 1 stands as high as i has trailing zero bits, so that
a subtree is a run of consecutive ranks and most edges join near ones.  With m chunks and
depth D = floor(lg n), an all-reduce takes m + 2D - 1 rounds, a broadcast or a reduce m + D - 1.
An inner rank of an all-reduce receives three chunks a round (two children's, its parent's)
and sends three: S bytes take 3S/B in the steady state, against 2S/B for a broadcast or a
reduce.  (Sanders, Speck, Traff, Two-tree algorithms for full bandwidth broadcast, reduction
and scan, Parallel Computing 35(12), 2009, section 2: the pipelined binary tree and its in-order
numbering.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.collectives.algorithms.pipeline import Edge, pipelined
from simulator.collectives.schedule import Schedule

__all__ = ["Tree", "down", "in_order_tree", "tree_all_reduce", "tree_broadcast", "tree_reduce", "up"]


@dataclass(frozen=True, slots=True)
class Tree:
    """A rooted tree: ``parent[r]`` (-1 at the root) and ``level[r]`` (0 at the root) of each rank."""

    parent: tuple[int, ...]
    level: tuple[int, ...]

    @property
    def root(self) -> int:
        """The rank without a parent."""
        return self.parent.index(-1)

    @property
    def depth(self) -> int:
        """Edges from the root to the farthest rank."""
        return max(self.level)

    def renamed(self, names: Sequence[int]) -> Tree:
        """Return the tree in which rank r is called ``names[r]``, a permutation."""
        parent, level = [-1] * len(names), [0] * len(names)
        for rank, name in enumerate(names):
            parent[name] = names[self.parent[rank]] if self.parent[rank] >= 0 else -1
            level[name] = self.level[rank]
        return Tree(tuple(parent), tuple(level))


def in_order_tree(n: int) -> Tree:
    """Return the in-order binary tree of *n* ranks; every even rank is a leaf."""
    parent, level = [-1] * n, [0] * n
    runs = [(1, n, 0, 0)]  # ranks from 1, parent (0: none), level
    while runs:
        low, high, above, depth = runs.pop()
        if low > high:
            continue
        top = high
        while (lower := top & (top - 1)) >= low:  # of low to high, the one with the most trailing zeros
            top = lower
        parent[top - 1], level[top - 1] = above - 1, depth
        runs += [(low, top - 1, top, depth + 1), (top + 1, high, top, depth + 1)]
    return Tree(tuple(parent), tuple(level))


def up(tree: Tree, depth: int, part: int = 0) -> list[list[Edge]]:
    """Return the stages that reduce up *tree*, the deepest of *depth* levels first."""
    return [
        [Edge(r, p, reduce=True, part=part) for r, p in enumerate(tree.parent) if tree.level[r] == level and p >= 0]
        for level in range(depth, 0, -1)
    ]


def down(tree: Tree, depth: int, part: int = 0) -> list[list[Edge]]:
    """Return the stages that broadcast down *tree*, the root's edges first."""
    return [
        [Edge(p, r, part=part) for r, p in enumerate(tree.parent) if tree.level[r] == level and p >= 0]
        for level in range(1, depth + 1)
    ]


def _rooted(n: int, root: int) -> Tree:
    tree = in_order_tree(n)
    turn = root - tree.root
    return tree.renamed([(r + turn) % n for r in range(n)])


def tree_all_reduce(n: int, n_chunks: int = 1) -> Schedule:
    """Return the all-reduce over one tree, going up and down overlapped."""
    tree = in_order_tree(n)
    return pipelined(n, up(tree, tree.depth) + down(tree, tree.depth), n_chunks, label="tree")


def tree_broadcast(n: int, n_chunks: int = 1, root: int = 0) -> Schedule:
    """Return the broadcast down the tree, turned so that *root* is its root."""
    tree = _rooted(n, root)
    return pipelined(n, down(tree, tree.depth), n_chunks, label="broadcast")


def tree_reduce(n: int, n_chunks: int = 1, root: int = 0) -> Schedule:
    """Return the reduce up the tree, turned so that *root* is its root."""
    tree = _rooted(n, root)
    return pipelined(n, up(tree, tree.depth), n_chunks, label="reduce")
