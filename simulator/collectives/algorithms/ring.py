"""Rings: chunks travel around a ring, so every link works in every round.

With n ranks, S bytes, and links of bandwidth B and latency L, an all-reduce takes 2(n-1)(S/(nB) + L): n-1 rounds that
add, and n-1 that distribute the sums.  (Patarasuk, Yuan, Bandwidth optimal all-reduce algorithms, JPDC 69(2), 2009.)

Broadcast and reduce leave out one hop.  This gives a chain along which m pipelined chunks take (m + n - 2)(L + S/(mB)).
One chunk is the naive form, the whole buffer hop by hop: (n - 1)(L + S/B).  (Pipelined broadcast along a linear array:
Chan, Heimlich, Purkayastha, van de Geijn, Collective communication: theory, practice, and experience, CCPE 19(13),
2007, section 5.)
"""

from __future__ import annotations

from simulator.collectives.algorithms.pipeline import Edge, pipelined
from simulator.collectives.schedule import Round, Schedule, Send


def _round(n: int, first_of: int, *, reduce: bool, label: str) -> Round:
    """Return a round, repeated n - 1 times: rank i sends chunk i + *first_of* to rank i + 1, then the one before it."""
    sends = tuple(Send(i, (i + 1) % n, (i + first_of) % n, step=-1, reduce=reduce) for i in range(n))
    return Round(sends, repeat=n - 1, label=label)


def ring_reduce_scatter(n: int) -> Schedule:
    """Return the schedule after which rank i holds the sum of chunk i."""
    return Schedule(n, n, (_round(n, -1, reduce=True, label="reduce-scatter"),))


def ring_all_gather(n: int) -> Schedule:
    """Return the schedule that sends chunk i from rank i to all ranks."""
    return Schedule(n, n, (_round(n, 0, reduce=False, label="all-gather"),))


def ring_all_reduce(n: int) -> Schedule:
    """Return the schedule after which every rank holds the sum of every chunk."""
    return Schedule(n, n, ring_reduce_scatter(n).rounds + ring_all_gather(n).rounds)


def chain_broadcast(n: int, n_chunks: int = 1, root: int = 0) -> Schedule:
    """Return the schedule that passes the buffer of *root* along root + 1, root + 2, ..."""
    stages = [[Edge((root + k) % n, (root + k + 1) % n)] for k in range(n - 1)]
    return pipelined(n, stages, n_chunks, label="broadcast")


def chain_reduce(n: int, n_chunks: int = 1, root: int = 0) -> Schedule:
    """Return the schedule in which root + 1, root + 2, ... add to the passing buffer, *root* last."""
    stages = [[Edge((root + 1 + k) % n, (root + 2 + k) % n, reduce=True)] for k in range(n - 1)]
    return pipelined(n, stages, n_chunks, label="reduce")


def naive_ring_all_reduce(n: int) -> Schedule:
    """Return the schedule that passes the whole buffer around twice, once to add and once to distribute.

    It takes 2(n - 1)(L + S/B), which grows with n: the first of the two rings in Dive into Deep Learning, section 13.7
    (ring synchronization).
    """
    return Schedule(n, 1, chain_reduce(n).rounds + chain_broadcast(n).rounds)
