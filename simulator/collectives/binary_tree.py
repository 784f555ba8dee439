"""One or two binary trees: chunks flow up to the root and down again, pipelined (docs/decisions/collectives.md)."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.collectives.schedules import ChunkEdge, Schedule, pipelined
from simulator.records import dataclass
from simulator.workload import Collective

Stages = list[list[ChunkEdge]]


@dataclass(frozen=True, slots=True)
class RootedTree:
    """A rooted tree: the ``parent`` (-1 for the root) and ``level`` (0 for the root) of each rank."""

    parent: tuple[int, ...]
    level: tuple[int, ...]

    @property
    def root(self) -> int:
        """The root's rank."""
        return self.parent.index(-1)

    @property
    def depth(self) -> int:
        """The number of edges from the root to the farthest rank."""
        return max(self.level)

    def edges(self) -> list[tuple[int, int]]:
        """Return (rank, parent) for each rank except the root."""
        return [(rank, parent) for rank, parent in enumerate(self.parent) if parent >= 0]

    def renamed(self, names: Sequence[int]) -> RootedTree:
        """Return the tree with rank r renamed to ``names[r]``; *names* is a permutation."""
        parent, level = [-1] * len(names), [0] * len(names)
        for rank, name in enumerate(names):
            parent[name] = names[self.parent[rank]] if self.parent[rank] >= 0 else -1
            level[name] = self.level[rank]
        return RootedTree(tuple(parent), tuple(level))


def in_order_tree(n: int) -> RootedTree:
    """Return the in-order binary tree of *n* ranks, in which every even rank is a leaf."""
    parent, level = [-1] * n, [0] * n
    runs = [(1, n, 0, 0)]  # first and last rank (from 1), parent (0: none), level
    while runs:
        low, high, above, depth = runs.pop()
        if low > high:
            continue
        top = high
        while (lower := top & (top - 1)) >= low:  # ends at the number in low..high with the most trailing zeros
            top = lower
        parent[top - 1], level[top - 1] = above - 1, depth
        runs += [(low, top - 1, top, depth + 1), (top + 1, high, top, depth + 1)]
    return RootedTree(tuple(parent), tuple(level))


def _down(tree: RootedTree, part: int = 0) -> Stages:
    below = [[r for r, own in enumerate(tree.level) if own == level] for level in range(1, tree.depth + 1)]
    return [[ChunkEdge(tree.parent[r], r, part=part) for r in ranks] for ranks in below]


def _up(down: Stages) -> Stages:
    return [[ChunkEdge(e.dst, e.src, True, e.part) for e in stage] for stage in reversed(down)]


def tree_schedule(
    collective: Collective, n: int, n_chunks: int = 1, root: int = 0, *, double: bool = False
) -> Schedule:
    """Return an all-reduce, or a broadcast from or reduce to *root*, of *n_chunks* along one tree or (*double*) two."""
    both_ways = collective == "all-reduce"
    if not double:
        tree = in_order_tree(n)
        turn = 0 if both_ways else root - tree.root
        down = _down(tree.renamed([(r + turn) % n for r in range(n)]))
    elif both_ways:
        down = _beside(*(_down(tree, part) for part, tree in enumerate(two_trees(n))))
    else:
        down = _fed(n, root)
    stages = _up(down) + down if both_ways else down if collective == "broadcast" else _up(down)
    label = ("double tree" if double else "tree") if both_ways else collective
    return pipelined(n, stages, n_chunks, n_parts=1 + double, label=label)


def two_trees(n: int) -> tuple[RootedTree, RootedTree]:
    """Return two binary trees of *n* ranks in which no rank is an inner node of both."""
    first = in_order_tree(n)
    names = [n - 1 - r for r in range(n)] if n % 2 == 0 else [(r + 1) % n for r in range(n)]
    return first, first.renamed(names)


def _fed(n: int, root: int) -> Stages:
    others = [(root + 1 + r) % n for r in range(n - 1)]
    ways = []
    for part, tree in enumerate(two_trees(n - 1)):
        down = [[ChunkEdge(others[e.src], others[e.dst], part=part) for e in stage] for stage in _down(tree, part)]
        ways.append([[ChunkEdge(root, others[tree.root], part=part)], *down])
    return _beside(*ways)


def _beside(first: Stages, second: Stages) -> Stages:
    return [a + b for a, b in zip(first, second, strict=True)]
