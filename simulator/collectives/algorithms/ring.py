"""Rings: chunks go round, so that every link works in every round.

With n ranks, S bytes and links of B and latency L, an all-reduce takes
2(n-1)(S/(nB) + L): n-1 rounds that add up, n-1 that spread the sums.
(Patarasuk, Yuan, Bandwidth optimal all-reduce algorithms, JPDC 69(2), 2009.)
"""

from __future__ import annotations

from simulator.collectives.schedule import Round, Schedule, Send

__all__ = ["ring_all_gather", "ring_all_reduce", "ring_reduce_scatter"]


def _round(n: int, first_of: int, *, reduce: bool, label: str) -> Round:
    """Rank i sends chunk i + *first_of* to rank i + 1, then the chunk before, n - 1 times."""
    sends = tuple(Send(i, (i + 1) % n, (i + first_of) % n, step=-1, reduce=reduce) for i in range(n))
    return Round(sends, repeat=n - 1, label=label)


def ring_reduce_scatter(n: int) -> Schedule:
    """Return the schedule after which rank i holds the sum of chunk i."""
    return Schedule(n, n, (_round(n, -1, reduce=True, label="reduce-scatter"),))


def ring_all_gather(n: int) -> Schedule:
    """Return the schedule that spreads chunk i from rank i to all."""
    return Schedule(n, n, (_round(n, 0, reduce=False, label="all-gather"),))


def ring_all_reduce(n: int) -> Schedule:
    """Return the schedule after which every rank holds the sum of every chunk."""
    return Schedule(n, n, ring_reduce_scatter(n).rounds + ring_all_gather(n).rounds)
