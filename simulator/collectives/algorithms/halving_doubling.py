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
from simulator.workload import Collective


@dataclass(frozen=True, slots=True)
class _Group:
    """The ranks ``members`` that exchange data, a power of two; ``folded`` has others as (rank, the member for it).

    Member j ends up with the chunks from ``bounds[j]`` up to ``bounds[j + 1]``.
    """

    members: tuple[int, ...]
    bounds: tuple[int, ...]
    folded: tuple[tuple[int, int], ...]

    @property
    def distances(self) -> list[int]:
        """Return the distances of pairs, doubling: 1, 2, 4, ..."""
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


def halving_doubling_schedule(collective: Collective, n: int, root: int = 0, *, whole: bool = False) -> Schedule:
    """Return *collective* by halving and doubling, an all-reduce of *whole* buffers by recursive doubling.

    An all-reduce is a reduce-scatter by halving and an all-gather by doubling (Rabenseifner's algorithm).  A broadcast
    is a binomial scatter from *root* followed by the all-gather, a reduce the reduce-scatter followed by a binomial
    gather on *root*; each takes 2 lg n L + 2(n-1)/n S/B if n is a power of two, and one more round of S otherwise.
    After a reduce-scatter rank i holds chunk i, and in an all-gather it sends it.
    """
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
    return _turned(Schedule(n, group.bounds[-1], tuple(each for each in rounds if each.sends)), root)


def _turned(schedule: Schedule, root: int) -> Schedule:
    """Return *schedule* rotated so that *root* takes the place of rank 0."""
    n = schedule.n_ranks
    if root % n == 0:
        return schedule

    def turned(sends: tuple[Send, ...]) -> tuple[Send, ...]:
        return tuple(replace(send, src=(send.src + root) % n, dst=(send.dst + root) % n) for send in sends)

    return replace(schedule, rounds=tuple(replace(step, sends=turned(step.sends)) for step in schedule.rounds))
