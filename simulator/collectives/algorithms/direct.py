"""Direct exchange: each rank sends to each other rank at once; rank i owns chunk i.

On a crossbar with bandwidth B at each rank, reduce-scatter, all-gather and all-to-all each take (n-1)/n S/B and one
latency.  (Dive into Deep Learning, section 13.7, the variant with four parts: 15 ms; MPI's "linear" algorithms.) The
pairwise all-to-all takes n - 1 rounds of L + S/(nB).  (Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005, section 4.4,
long messages.)
"""

from __future__ import annotations

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
