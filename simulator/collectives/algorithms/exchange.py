"""Pairs of ranks: send-recv, and the pairwise all-to-all made of it.

The pairwise all-to-all takes n - 1 rounds of L + S/(nB).  (Thakur, Rabenseifner, Gropp,
IJHPCA 19(1), 2005, section 4.4, long messages.)
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.collectives.schedule import Round, Schedule, Send

__all__ = ["neighbour_pairs", "pairwise_all_to_all", "send_recv"]


def neighbour_pairs(n: int) -> tuple[tuple[int, int], ...]:
    """Return each rank with the next: what nccl-tests' sendrecv measures."""
    return tuple((r, (r + 1) % n) for r in range(n)) if n > 1 else ()


def send_recv(n: int, pairs: Sequence[tuple[int, int]]) -> Schedule:
    """Return the schedule in which each pair's first rank sends its buffer, chunk r of n, to the second."""
    return Schedule(n, n, (Round(tuple(Send(src, dst, src) for src, dst in pairs), label="send-recv"),))


def pairwise_all_to_all(n: int) -> Schedule:
    """Return the schedule in which, in round k, rank r sends its block to rank r + k.

    The block from rank r to rank q is chunk r n + q of the n buffers together.
    """
    rounds = (
        Round(tuple(Send(r, (r + k) % n, r * n + (r + k) % n) for r in range(n)), label="all-to-all")
        for k in range(1, n)
    )
    return Schedule(n, n * n, tuple(rounds))
