"""Collective algorithms as schedules, who sends what to whom in which round (docs/decisions/collectives.md)."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from simulator.records import dataclass
from simulator.workload import Collective


@dataclass(frozen=True, slots=True)
class Send:
    """A send of ``width`` chunks from rank ``src`` to rank ``dst``, which adds them (``reduce``) or stores them."""

    src: int
    dst: int
    first: int
    width: int = 1
    step: int = 0
    reduce: bool = False

    def chunk(self, repetition: int, n_chunks: int) -> int:
        """Return the first chunk sent in the given *repetition* (from 0) of the round."""
        return (self.first + repetition * self.step) % n_chunks


@dataclass(frozen=True, slots=True)
class Local:
    """Memory traffic of ``rank`` once a round has arrived: bytes read and written, in units of a chunk."""

    rank: int
    chunks_touched: float


@dataclass(frozen=True, slots=True)
class Round:
    """Sends that start together, run ``repeat`` times; each repetition starts when the previous one has ended."""

    sends: tuple[Send, ...]
    repeat: int = 1
    label: str = ""
    local: tuple[Local, ...] = ()


@dataclass(frozen=True, slots=True)
class Schedule:
    """A sequence of rounds of ranks 0 to ``n_ranks`` - 1; numbers from there on are helpers (the CPU, servers)."""

    n_ranks: int
    n_chunks: int
    rounds: tuple[Round, ...]


@dataclass(frozen=True, slots=True)
class ChunkEdge:
    """An edge over which rank ``src`` passes each chunk of part number ``part`` of the buffer to ``dst``."""

    src: int
    dst: int
    reduce: bool = False
    part: int = 0


def pipelined(
    n_ranks: int, stages: Sequence[Sequence[ChunkEdge]], n_chunks: int, *, n_parts: int = 1, label: str = ""
) -> Schedule:
    """Return *n_chunks* chunks (1 or more) of each of *n_parts* parallel parts, passing through *stages*."""
    if n_chunks < 1:
        raise ValueError(f"a pipeline needs a chunk at least; got {n_chunks}")
    last = len(stages) - 1

    def busy(first: int, final: int, t: int) -> tuple[Send, ...]:
        edges = [(k, e) for k in range(first, final + 1) for e in stages[k]]
        return tuple(Send(e.src, e.dst, e.part * n_chunks + t - k, step=1, reduce=e.reduce) for k, e in edges)

    rounds: list[Round] = []
    t = 0
    while t <= last + n_chunks - 1 and last >= 0:
        first, final = max(0, t - n_chunks + 1), min(t, last)
        # All stages are busy until the last chunk has entered, so these rounds load the links equally.
        repeat = n_chunks - last if (first, final) == (0, last) else 1
        rounds.append(Round(busy(first, final, t), repeat=repeat, label=label))
        t += repeat
    return Schedule(n_ranks, n_parts * n_chunks, tuple(rounds))


def ring_schedule(collective: Collective, n: int, n_chunks: int = 1, root: int = 0, *, naive: bool = False) -> Schedule:
    """Return *collective* around a ring, in *n_chunks* or *naive*; a reduce-scatter leaves chunk i at rank i."""
    if collective in ("broadcast", "reduce"):
        adds = collective == "reduce"
        along = [(root + adds + k) % n for k in range(n)]
        return pipelined(n, [[ChunkEdge(*pair, reduce=adds)] for pair in pairwise(along)], n_chunks, label=collective)
    if naive:
        return Schedule(n, 1, ring_schedule("reduce", n).rounds + ring_schedule("broadcast", n).rounds)
    rounds = []
    for label, first_of in (("reduce-scatter", -1), ("all-gather", 0)):
        if collective in ("all-reduce", label):  # rank i sends this chunk after i to rank i + 1, then the one before it
            sends = (Send(i, (i + 1) % n, (i + first_of) % n, step=-1, reduce=first_of < 0) for i in range(n))
            rounds.append(Round(tuple(sends), repeat=n - 1, label=label))
    return Schedule(n, n, tuple(rounds))


def direct_schedule(collective: Collective, n: int, root: int = 0) -> Schedule:
    """Return *collective*, in which each rank sends to each other at once; block r n + q goes from r to q."""
    pairs = [(r, q) for r in range(n) for q in range(n) if q != r]
    others = [r for r in range(n) if r != root]
    if collective == "all-to-all":
        return Schedule(n, n * n, (Round(tuple(Send(r, q, r * n + q) for r, q in pairs), label="all-to-all"),))
    rounds = []
    if collective in ("all-reduce", "reduce-scatter", "reduce"):  # rank i adds chunk i of all in one pass
        adding, passes = tuple(Send(r, q, q, reduce=True) for r, q in pairs), tuple(Local(r, n + 1) for r in range(n))
        rounds.append(Round(adding, label="reduce-scatter", local=passes))
    if collective == "broadcast":
        rounds.append(Round(tuple(Send(root, r, r) for r in others), label="scatter"))
    if collective == "reduce":
        rounds.append(Round(tuple(Send(r, root, r) for r in others), label="gather"))
    if collective in ("all-reduce", "all-gather", "broadcast"):
        lacking = [pair for pair in pairs if collective != "broadcast" or pair[1] != root]
        rounds.append(Round(tuple(Send(r, q, r) for r, q in lacking), label="all-gather"))
    return Schedule(n, n, tuple(each for each in rounds if each.sends))


def neighbour_pairs(n: int) -> tuple[tuple[int, int], ...]:
    """Return the pairs (r, r + 1), modulo *n*, as in nccl-tests' sendrecv."""
    return tuple((r, (r + 1) % n) for r in range(n)) if n > 1 else ()


def send_recv(n: int, pairs: Sequence[tuple[int, int]]) -> Schedule:
    """Return the schedule in which the first rank r of each pair sends its buffer, chunk r of *n*, to the second."""
    return Schedule(n, n, (Round(tuple(Send(src, dst, src) for src, dst in pairs), label="send-recv"),))


def pairwise_all_to_all(n: int) -> Schedule:
    """Return the schedule in which rank r sends to r + k in round k; from r to q goes chunk r n + q of n buffers."""
    sends = ([Send(r, (r + k) % n, r * n + (r + k) % n) for r in range(n)] for k in range(1, n))
    return Schedule(n, n * n, tuple(Round(tuple(each), label="all-to-all") for each in sends))


def star_schedule(collective: Collective, n: int, centre: int, root: int = 0) -> Schedule:
    """Return *collective* around *centre*, which receives whole buffers, adds them and sends back what each lacks."""
    others = [r for r in range(n) if r != centre]
    m = n if collective in ("reduce-scatter", "all-gather") else 1
    label = "gather"
    local: tuple[Local, ...] = (Local(centre, (n + 1) * m),)
    into = [Send(r, centre, 0, m, reduce=True) for r in others]
    if collective == "all-gather":
        into, local = [Send(r, centre, r) for r in others], ()
    elif collective == "broadcast":
        label, into, local = "push", [Send(root, centre, 0)] if root != centre else [], ()
    back_label = {"reduce": "return", "reduce-scatter": "scatter"}.get(collective, "broadcast")
    if collective == "reduce-scatter":
        back = [Send(centre, r, r) for r in others]
    elif collective == "all-gather":
        back = [Send(centre, r, (r + 1) % n, n - 1) for r in others]
    else:
        to = {"reduce": [root], "broadcast": [r for r in others if r != root]}.get(collective, others)
        back = [Send(centre, r, 0) for r in to if r != centre]
    rounds = Round(tuple(into), label=label, local=local), Round(tuple(back), label=back_label)
    return Schedule(n, m, tuple(each for each in rounds if each.sends))


def push_pull(n: int, owners: Sequence[int]) -> Schedule:
    """Return the all-reduce in which owner *j*, a rank or helper, adds n shards of chunk j in one pass of memory."""
    pushes = tuple(Send(r, o, j, reduce=True) for j, o in enumerate(owners) for r in range(n) if r != o)
    pulls = tuple(Send(o, r, j) for j, o in enumerate(owners) for r in range(n) if r != o)
    local = tuple(Local(owner, (n + 1) * count) for owner, count in Counter(owners).items())
    return Schedule(n, len(owners), (Round(pushes, label="push", local=local), Round(pulls, label="pull")))


@dataclass(frozen=True, slots=True)
class _Group:
    """Ranks that exchange, a power of two, ``folded`` others (rank, member), and each one's chunks by ``bounds``."""

    members: tuple[int, ...]
    bounds: tuple[int, ...]
    folded: tuple[tuple[int, int], ...]

    @property
    def distances(self) -> list[int]:
        return [1 << bit for bit in range(len(self.members).bit_length() - 1)]

    def paired(self, label: str, far: int, *, reduce: bool) -> Round:
        """Return the round in which members *far* apart exchange what one of both ends up with."""
        ends = ((j, j ^ far) for j in range(len(self.members)))
        owned = ((j, k, (k if reduce else j) // far * far) for j, k in ends)
        return Round(tuple(self.send(j, k, low, far, reduce=reduce) for j, k, low in owned), label=label)

    def along(self, label: str, far: int, *, down: bool) -> Round:
        """Return a round of a binomial tree: each subtree's data go from its parent (*down*), or to it."""
        ends = ((j, j + far) for j in range(0, len(self.members), 2 * far))
        sends = (self.send(*((j, k) if down else (k, j)), k, far, reduce=False) for j, k in ends)
        return Round(tuple(sends), label=label)

    def send(self, src: int, dst: int, low: int, count: int, *, reduce: bool) -> Send:
        """Return the send of the chunks of *count* members, starting with member *low*."""
        first = self.bounds[low]
        return Send(self.members[src], self.members[dst], first, self.bounds[low + count] - first, reduce=reduce)


def _group(collective: Collective, n: int, *, whole: bool) -> _Group:
    """Return the 2^p members that fit; 2i stands for each other rank 2i + 1; of a *whole*, all own the only chunk."""
    rest = n - (1 << (n.bit_length() - 1))
    members = tuple(range(0, 2 * rest, 2)) + tuple(range(2 * rest, n))
    folded = tuple((2 * i + 1, 2 * i) for i in range(rest))
    if whole:
        return _Group(members, (0, 1), folded)
    if collective in ("reduce-scatter", "all-gather"):  # rank i, or the member that stands for it, owns chunk i of n
        return _Group(members, (*members, n), folded)
    bits = len(members).bit_length() - 1  # one chunk per member, ordered so that the largest halves go to nearby ranks
    turned = [int(format(j, f"0{bits}b")[::-1], 2) if bits else 0 for j in range(len(members))]
    return _Group(tuple(members[j] for j in turned), tuple(range(len(members) + 1)), folded)


def halving_doubling_schedule(collective: Collective, n: int, *, whole: bool = False) -> Schedule:
    """Return *collective* by halving and doubling, from or to rank 0; of *whole* buffers by recursive doubling."""
    group = _group(collective, n, whole=whole)
    if whole:
        pairs = [[(rank, group.members[j ^ far]) for j, rank in enumerate(group.members)] for far in group.distances]
        rounds = [Round(tuple(Send(a, b, 0, reduce=True) for a, b in each), label="exchange") for each in pairs]
    elif collective == "broadcast":
        rounds = [group.along("scatter", far, down=True) for far in reversed(group.distances)]
    elif collective == "all-gather":
        rounds = [Round(tuple(Send(rank, member, rank) for rank, member in group.folded), label="fold")]
    else:
        rounds = [group.paired("reduce-scatter", far, reduce=True) for far in reversed(group.distances)]
    if collective in ("all-reduce", "reduce-scatter", "reduce"):  # folded ranks hand over their whole buffers
        fold = tuple(Send(rank, member, 0, group.bounds[-1], reduce=True) for rank, member in group.folded)
        rounds.insert(0, Round(fold, label="fold"))
    if collective == "reduce":
        rounds += [group.along("gather", far, down=False) for far in group.distances]
    elif collective != "reduce-scatter" and not whole:
        rounds += [group.paired("all-gather", far, reduce=False) for far in group.distances]
    if collective == "reduce-scatter":
        back = [Send(member, rank, rank) for rank, member in group.folded]
    elif collective == "all-gather":
        back = [Send(member, rank, (rank + 1) % n, n - 1) for rank, member in group.folded]
    else:
        ends = group.folded if collective != "reduce" else ()
        back = [Send(member, rank, 0, group.bounds[-1]) for rank, member in ends]
    rounds.append(Round(tuple(back), label="unfold"))
    return Schedule(n, group.bounds[-1], tuple(each for each in rounds if each.sends))


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

    def renamed(self, names: Sequence[int]) -> "RootedTree":
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


def tree_schedule(collective: Collective, n: int, n_chunks: int = 1, *, double: bool = False) -> Schedule:
    """Return an all-reduce, or a broadcast from or reduce to rank 0, of *n_chunks* along a tree or (*double*) two."""
    both_ways = collective == "all-reduce"
    if not double:
        tree = in_order_tree(n)
        turn = 0 if both_ways else -tree.root
        down = _down(tree.renamed([(r + turn) % n for r in range(n)]))
    elif both_ways:
        down = _beside(*(_down(tree, part) for part, tree in enumerate(two_trees(n))))
    else:
        down = _fed(n)
    stages = _up(down) + down if both_ways else down if collective == "broadcast" else _up(down)
    label = ("double tree" if double else "tree") if both_ways else collective
    return pipelined(n, stages, n_chunks, n_parts=1 + double, label=label)


def two_trees(n: int) -> tuple[RootedTree, RootedTree]:
    """Return two binary trees of *n* ranks in which no rank is an inner node of both."""
    first = in_order_tree(n)
    names = [n - 1 - r for r in range(n)] if n % 2 == 0 else [(r + 1) % n for r in range(n)]
    return first, first.renamed(names)


def _fed(n: int) -> Stages:
    ways = []
    for part, tree in enumerate(two_trees(n - 1)):  # of the others than rank 0
        down = [[ChunkEdge(1 + e.src, 1 + e.dst, part=part) for e in stage] for stage in _down(tree, part)]
        ways.append([[ChunkEdge(0, 1 + tree.root, part=part)], *down])
    return _beside(*ways)


def _beside(first: Stages, second: Stages) -> Stages:
    return [a + b for a, b in zip(first, second, strict=True)]
