"""Direct exchange, in which each rank sends to each other rank at once and rank i owns chunk i; and stars.

On a crossbar with bandwidth B at each rank, reduce-scatter, all-gather and all-to-all each take (n-1)/n S/B and one
latency.  (Dive into Deep Learning, section 13.7, the variant with four parts: 15 ms; MPI's "linear" algorithms.) The
pairwise all-to-all takes n - 1 rounds of L + S/(nB).  (Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005, section 4.4,
long messages.)

In a star all data pass through one centre, a rank (gather on a GPU) or a helper (gather on the CPU).

All flows run at once and share the centre's link of bandwidth B, so an all-reduce of S bytes takes 2(n - 1)S/B if the
centre is a rank, and 2nS/B if it is a helper.  (Dive into Deep Learning, section 13.7, data parallel training: 60 ms
and 80 ms.)

Once all buffers have arrived, the centre adds them in its own memory, in one pass that reads n buffers and writes the
sum.

Parameter servers are several centres, each of which owns an equal shard of the buffer.  With m workers, n servers that
are helpers, S bytes and B at each link, push and pull take 2(m/n)S/B (at least 2S/B, for the workers' own links).  With
a server beside each worker they take 2((m-1)/m)S/B, as a ring does.  (Li et al., Scaling distributed machine learning
with the parameter server, OSDI 2014.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from simulator.collectives.algorithms import Local, Round, Schedule, Send
from simulator.workload import Collective


def direct_schedule(collective: Collective, n: int, root: int = 0) -> Schedule:
    """Return *collective*, in which each rank sends to each other one at once.

    An all-reduce, a broadcast and a reduce take 2(n-1)/n S/B on a crossbar: a reduce-scatter (a scatter from the root)
    followed by an all-gather (a gather on the root).  In a broadcast, the root already has all chunks and receives
    nothing.  (Scatter and all-gather for long messages: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005, section 4.2.)
    In an all-to-all, the block from rank r to q is chunk r n + q of the n buffers.
    """
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
    rounds = (
        Round(tuple(Send(r, (r + k) % n, r * n + (r + k) % n) for r in range(n)), label="all-to-all")
        for k in range(1, n)
    )
    return Schedule(n, n * n, tuple(rounds))


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
