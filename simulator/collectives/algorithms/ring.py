"""Rings: chunks travel around a ring, so every link works in every round; and pipelines, in which they pass stages.

With n ranks, S bytes, and links of bandwidth B and latency L, an all-reduce takes 2(n-1)(S/(nB) + L): n-1 rounds that
add, and n-1 that distribute the sums.  (Patarasuk, Yuan, Bandwidth optimal all-reduce algorithms, JPDC 69(2), 2009.)
Broadcast and reduce leave out one hop.  This gives a chain along which m pipelined chunks take (m + n - 2)(L + S/(mB)).
One chunk is the naive form, the whole buffer hop by hop: (n - 1)(L + S/B).  (Pipelined broadcast along a linear array:
Chan, Heimlich, Purkayastha, van de Geijn, Collective communication: theory, practice, and experience, CCPE 19(13),
2007, section 5.)

In a pipeline, chunk c passes stage k in round c + k, so m chunks pass s stages in m + s - 1 rounds.  Consecutive rounds
with the same busy stages are one repeated round, so the number of listed rounds grows with the stages, not the chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from simulator.collectives.algorithms import Round, Schedule, Send
from simulator.records import dataclass
from simulator.workload import Collective


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
        return tuple(
            Send(e.src, e.dst, e.part * n_chunks + t - k, step=1, reduce=e.reduce)
            for k in range(first, final + 1)
            for e in stages[k]
        )

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
    """Return *collective* around a ring; a reduce-scatter leaves the sum of chunk i at rank i.

    A broadcast passes *n_chunks* chunks along root + 1, root + 2, ...; in a reduce these add to the passing buffer, the
    root last.  A *naive* all-reduce passes the whole buffer around twice, once to add and once to distribute.  It takes
    2(n - 1)(L + S/B), which grows with n: the first of the two rings in Dive into Deep Learning, section 13.7 (ring
    synchronization).
    """
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
