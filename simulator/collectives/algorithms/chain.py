"""Broadcast and reduce along a ring, one hop left out: chunks follow each other.

With n ranks, S bytes in m chunks and links of B and latency L, either takes
(m + n - 2)(L + S/(mB)).  One chunk is the naive way, the whole buffer hop by hop:
(n - 1)(L + S/B).
(Pipelined broadcast along a linear array: Chan, Heimlich, Purkayastha, van de Geijn,
Collective communication: theory, practice, and experience, CCPE 19(13), 2007, section 5.)
"""

from __future__ import annotations

from simulator.collectives.algorithms.pipeline import Edge, pipelined
from simulator.collectives.schedule import Schedule

__all__ = ["chain_broadcast", "chain_reduce", "naive_ring_all_reduce"]


def chain_broadcast(n: int, n_chunks: int = 1, root: int = 0) -> Schedule:
    """Return the schedule that passes the buffer of *root* on to root + 1, root + 2, ..."""
    stages = [[Edge((root + k) % n, (root + k + 1) % n)] for k in range(n - 1)]
    return pipelined(n, stages, n_chunks, label="broadcast")


def chain_reduce(n: int, n_chunks: int = 1, root: int = 0) -> Schedule:
    """Return the schedule in which root + 1, root + 2, ... add to what passes, *root* last."""
    stages = [[Edge((root + 1 + k) % n, (root + 2 + k) % n, reduce=True)] for k in range(n - 1)]
    return pipelined(n, stages, n_chunks, label="reduce")


def naive_ring_all_reduce(n: int) -> Schedule:
    """Return the schedule that passes the whole buffer round, once to add up and once to spread.

    It takes 2(n - 1)(L + S/B): the first of the two rings of Dive into Deep Learning,
    section 13.7 (ring synchronization), whose time grows with n.
    """
    return Schedule(n, 1, chain_reduce(n).rounds + chain_broadcast(n).rounds)
