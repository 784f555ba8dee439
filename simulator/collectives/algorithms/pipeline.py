"""Pipelines: a buffer cut into chunks that pass through stages one after another.

Chunk c passes stage k in round c + k, so m chunks pass s stages in m + s - 1 rounds.  Consecutive rounds with the same
busy stages are one repeated round, so the number of listed rounds grows with the stages, not with the chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.collectives.schedule import Round, Schedule, Send


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge over which rank ``src`` passes each chunk of part number ``part`` of the buffer to ``dst``."""

    src: int
    dst: int
    reduce: bool = False
    part: int = 0


def pipelined(
    n_ranks: int, stages: Sequence[Sequence[Edge]], n_chunks: int, *, n_parts: int = 1, label: str = ""
) -> Schedule:
    """Return the schedule in which *n_chunks* chunks of each part pass through *stages*.

    The buffer has *n_parts* equal parts that move in parallel (the halves of a double tree).  Raises ValueError if
    *n_chunks* is below 1.
    """
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
