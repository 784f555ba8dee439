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


def direct_reduce_scatter(n: int) -> Schedule:
    """Return the schedule in which all ranks send chunk i to rank i, which adds them in one pass."""
    sends = tuple(Send(r, q, q, reduce=True) for r in range(n) for q in range(n) if q != r)
    return Schedule(n, n, (Round(sends, label="reduce-scatter", local=tuple(Local(r, n + 1) for r in range(n))),))


def direct_all_gather(n: int) -> Schedule:
    """Return the schedule in which rank i sends chunk i to all other ranks."""
    sends = tuple(Send(r, q, r) for r in range(n) for q in range(n) if q != r)
    return Schedule(n, n, (Round(sends, label="all-gather"),))


def direct_all_reduce(n: int) -> Schedule:
    """Return reduce-scatter followed by all-gather: 2(n-1)/n S/B on a crossbar."""
    return Schedule(n, n, direct_reduce_scatter(n).rounds + direct_all_gather(n).rounds)


def direct_scatter(n: int, root: int = 0) -> Schedule:
    """Return the schedule in which *root* sends chunk i to rank i."""
    return Schedule(n, n, (Round(tuple(Send(root, r, r) for r in range(n) if r != root), label="scatter"),))


def direct_gather(n: int, root: int = 0) -> Schedule:
    """Return the schedule in which rank i sends chunk i to *root*."""
    return Schedule(n, n, (Round(tuple(Send(r, root, r) for r in range(n) if r != root), label="gather"),))


def direct_broadcast(n: int, root: int = 0) -> Schedule:
    """Return scatter followed by all-gather: 2(n-1)/n S/B on a crossbar.

    The root already has all chunks and receives nothing.  (Scatter and all-gather for long messages: Thakur,
    Rabenseifner, Gropp, IJHPCA 19(1), 2005, section 4.2.)
    """
    spread = tuple(Send(r, q, r) for r in range(n) for q in range(n) if q not in (r, root))
    rounds = (*direct_scatter(n, root).rounds, Round(spread, label="all-gather"))
    return Schedule(n, n, tuple(r for r in rounds if r.sends))


def direct_reduce(n: int, root: int = 0) -> Schedule:
    """Return reduce-scatter followed by a gather on *root*: 2(n-1)/n S/B on a crossbar."""
    return Schedule(n, n, direct_reduce_scatter(n).rounds + direct_gather(n, root).rounds)


def direct_all_to_all(n: int) -> Schedule:
    """Return the schedule in which all blocks go at once; that from rank r to q is chunk r n + q of the n buffers."""
    sends = tuple(Send(r, q, r * n + q) for r in range(n) for q in range(n) if q != r)
    return Schedule(n, n * n, (Round(sends, label="all-to-all"),))


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


# -- stars -----------------------------------------------------------------------------


def _gathered(n: int, centre: int, n_chunks: int) -> Round:
    """Return the round in which all ranks send whole buffers to the centre, which adds them."""
    sends = tuple(Send(r, centre, 0, n_chunks, reduce=True) for r in range(n) if r != centre)
    return Round(sends, label="gather", local=(Local(centre, (n + 1) * n_chunks),))


def star_all_reduce(n: int, centre: int) -> Schedule:
    """Return the schedule after which every rank holds the sum computed by *centre*."""
    back = tuple(Send(centre, r, 0) for r in range(n) if r != centre)
    return Schedule(n, 1, (_gathered(n, centre, 1), Round(back, label="broadcast")))


def star_reduce(n: int, centre: int, root: int) -> Schedule:
    """Return the schedule after which *root* holds the sum."""
    rounds = [_gathered(n, centre, 1)]
    if root != centre:
        rounds.append(Round((Send(centre, root, 0),), label="return"))
    return Schedule(n, 1, tuple(rounds))


def star_broadcast(n: int, centre: int, root: int) -> Schedule:
    """Return the schedule that sends the buffer of *root* to the centre, and from there to all ranks."""
    rounds = [Round((Send(root, centre, 0),), label="push")] if root != centre else []
    rounds.append(Round(tuple(Send(centre, r, 0) for r in range(n) if r not in (centre, root)), label="broadcast"))
    return Schedule(n, 1, tuple(r for r in rounds if r.sends))


def star_reduce_scatter(n: int, centre: int) -> Schedule:
    """Return the schedule in which the centre adds all buffers and sends chunk i to rank i."""
    back = tuple(Send(centre, r, r) for r in range(n) if r != centre)
    return Schedule(n, n, (_gathered(n, centre, n), Round(back, label="scatter")))


def star_all_gather(n: int, centre: int) -> Schedule:
    """Return the schedule in which the centre collects chunk i from rank i and sends each rank the chunks it lacks."""
    into = tuple(Send(r, centre, r) for r in range(n) if r != centre)
    back = tuple(Send(centre, r, (r + 1) % n, n - 1) for r in range(n) if r != centre)
    return Schedule(n, n, (Round(into, label="gather"), Round(back, label="broadcast")))


def push_pull(n: int, owners: Sequence[int]) -> Schedule:
    """Return the all-reduce in which owner *j*, a rank or helper, adds n shards of chunk j in one pass of memory."""
    pushes = tuple(Send(r, o, j, reduce=True) for j, o in enumerate(owners) for r in range(n) if r != o)
    pulls = tuple(Send(o, r, j) for j, o in enumerate(owners) for r in range(n) if r != o)
    local = tuple(Local(owner, (n + 1) * count) for owner, count in Counter(owners).items())
    return Schedule(n, len(owners), (Round(pushes, label="push", local=local), Round(pulls, label="pull")))
