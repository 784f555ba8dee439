"""Recursive halving and doubling: pairs at doubling distances exchange halves of the remaining data.

If the number of ranks n is a power of two, an all-reduce takes 2 lg n L + 2(n-1)/n S/B.  Otherwise, with p the largest
power of two below n, n - p ranks first hand their buffers to a neighbour and receive the result at the end, which adds
two rounds of S: (2 lg p + 2)L + (2(p-1)/p + 2)S/B.

Recursive doubling, for short messages, exchanges whole partial sums in the fewest rounds: lg n (L + S/B) if n is a
power of two, two more rounds of S otherwise.  (Thakur, Rabenseifner, Gropp, Optimization of collective communication
operations in MPICH, IJHPCA 19(1), 2005: section 4.5 for all-reduce of long and short messages, 4.3 for reduce-scatter,
4.2 for broadcast by scatter and all-gather.)
"""

from __future__ import annotations

from simulator.collectives.algorithms import Round, Schedule, Send
from simulator.records import dataclass, replace


@dataclass(frozen=True, slots=True)
class _Group:
    """The ranks that exchange data; their number is a power of two.

    Member j, the rank ``members[j]``, ends up with the chunks from ``bounds[j]`` up to ``bounds[j + 1]``.  ``folded``
    lists the other ranks as (rank, the member that represents it).
    """

    members: tuple[int, ...]
    bounds: tuple[int, ...]
    folded: tuple[tuple[int, int], ...]

    @property
    def distances(self) -> list[int]:
        """Return the distances of pairs, doubling: 1, 2, 4, ..."""
        return [1 << bit for bit in range(len(self.members).bit_length() - 1)]

    def halving(self) -> list[Round]:
        """Return rounds in which members ever nearer exchange and add what the other ends up with."""
        return [self._paired("reduce-scatter", far, reduce=True) for far in reversed(self.distances)]

    def doubling(self) -> list[Round]:
        """Return rounds in which members ever farther apart exchange what they have."""
        return [self._paired("all-gather", far, reduce=False) for far in self.distances]

    def _paired(self, label: str, far: int, *, reduce: bool) -> Round:
        ends = ((j, j ^ far) for j in range(len(self.members)))
        owned = ((j, k, (k if reduce else j) // far * far) for j, k in ends)
        return Round(tuple(self.send(j, k, low, far, reduce=reduce) for j, k, low in owned), label=label)

    def fold(self) -> list[Round]:
        """Return the round in which folded ranks hand over their whole buffers."""
        sends = (Send(rank, member, 0, self.bounds[-1], reduce=True) for rank, member in self.folded)
        return [Round(tuple(sends), label="fold")]

    def unfold(self) -> list[Round]:
        """Return the round in which folded ranks receive the whole result."""
        sends = (Send(member, rank, 0, self.bounds[-1]) for rank, member in self.folded)
        return [Round(tuple(sends), label="unfold")]

    def along(self, label: str, far: int, *, down: bool) -> Round:
        """Return a round of a binomial tree: each subtree's data go from its parent (*down*), or to it."""
        ends = ((j, j + far) for j in range(0, len(self.members), 2 * far))
        sends = (self.send(*((j, k) if down else (k, j)), k, far, reduce=False) for j, k in ends)
        return Round(tuple(sends), label=label)

    def send(self, src: int, dst: int, low: int, count: int, *, reduce: bool) -> Send:
        """Return the send of the chunks of *count* members, starting with member *low*."""
        first = self.bounds[low]
        return Send(self.members[src], self.members[dst], first, self.bounds[low + count] - first, reduce=reduce)


def _paired(n: int) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    """Return the 2^p members that fit, and the other k ranks as (2i + 1, the member 2i that stands for it), i < k."""
    rest = n - (1 << (n.bit_length() - 1))
    members = tuple(range(0, 2 * rest, 2)) + tuple(range(2 * rest, n))
    return members, tuple((2 * i + 1, 2 * i) for i in range(rest))


def _by_block(n: int) -> _Group:
    """Return the group in which rank i, or the member that represents it, owns chunk i of n."""
    members, folded = _paired(n)
    return _Group(members, (*members, n), folded)


def _by_member(n: int) -> _Group:
    """Return the group with one chunk per member, ordered so that the largest halves go to nearby ranks."""
    members, folded = _paired(n)
    bits = len(members).bit_length() - 1
    turned = [int(format(j, f"0{bits}b")[::-1], 2) if bits else 0 for j in range(len(members))]
    return _Group(tuple(members[j] for j in turned), tuple(range(len(members) + 1)), folded)


def halving_doubling_all_reduce(n: int) -> Schedule:
    """Return reduce-scatter by halving and all-gather by doubling (Rabenseifner's algorithm)."""
    group = _by_member(n)
    return _of_rounds(n, group, *group.fold(), *group.halving(), *group.doubling(), *group.unfold())


def recursive_doubling_all_reduce(n: int) -> Schedule:
    """Return the all-reduce by exchanges of whole buffers."""
    members, folded = _paired(n)
    group = _Group(members, (0, 1), folded)  # one chunk, owned by all
    rounds = [
        Round(tuple(Send(rank, members[j ^ far], 0, reduce=True) for j, rank in enumerate(members)), label="exchange")
        for far in group.distances
    ]
    return _of_rounds(n, group, *group.fold(), *rounds, *group.unfold())


def halving_doubling_reduce_scatter(n: int) -> Schedule:
    """Return the schedule after which rank i holds the sum of chunk i."""
    group = _by_block(n)
    back = tuple(Send(member, rank, rank) for rank, member in group.folded)
    return _of_rounds(n, group, *group.fold(), *group.halving(), Round(back, label="unfold"))


def halving_doubling_all_gather(n: int) -> Schedule:
    """Return the schedule that sends chunk i from rank i to all ranks."""
    group = _by_block(n)
    into = tuple(Send(rank, member, rank) for rank, member in group.folded)
    back = tuple(Send(member, rank, (rank + 1) % n, n - 1) for rank, member in group.folded)
    return _of_rounds(n, group, Round(into, label="fold"), *group.doubling(), Round(back, label="unfold"))


def halving_doubling_broadcast(n: int, root: int = 0) -> Schedule:
    """Return a binomial scatter from *root* followed by an all-gather by doubling.

    It takes 2 lg n L + 2(n-1)/n S/B if n is a power of two, and one more round of S otherwise.
    """
    group = _by_member(n)
    rounds = [group.along("scatter", far, down=True) for far in reversed(group.distances)]
    return _turned(_of_rounds(n, group, *rounds, *group.doubling(), *group.unfold()), root)


def halving_doubling_reduce(n: int, root: int = 0) -> Schedule:
    """Return a reduce-scatter by halving followed by a binomial gather on *root*.

    It takes 2 lg n L + 2(n-1)/n S/B if n is a power of two, and one more round of S otherwise.
    """
    group = _by_member(n)
    rounds = [group.along("gather", far, down=False) for far in group.distances]
    return _turned(_of_rounds(n, group, *group.fold(), *group.halving(), *rounds), root)


def _of_rounds(n: int, group: _Group, *rounds: Round) -> Schedule:
    return Schedule(n, group.bounds[-1], tuple(step for step in rounds if step.sends))


def _turned(schedule: Schedule, root: int) -> Schedule:
    """Return *schedule* rotated so that *root* takes the place of rank 0."""
    n = schedule.n_ranks
    if root % n == 0:
        return schedule

    def turned(sends: tuple[Send, ...]) -> tuple[Send, ...]:
        return tuple(replace(send, src=(send.src + root) % n, dst=(send.dst + root) % n) for send in sends)

    return replace(schedule, rounds=tuple(replace(step, sends=turned(step.sends)) for step in schedule.rounds))
