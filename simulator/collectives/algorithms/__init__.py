"""Collective algorithms as machine-independent schedules: who sends what to whom in which round (:class:`Schedule`).

The user's buffer is cut into ``n_chunks`` equal chunks.  A send carries ``width`` consecutive chunks starting at
``first``, modulo ``n_chunks``.  Each repetition of a round advances its sends by ``step`` chunks.  So a ring of n ranks
is only two rounds, yet tests can follow every chunk.
"""

from __future__ import annotations

from simulator.records import dataclass


@dataclass(frozen=True, slots=True)
class Send:
    """A send of ``width`` chunks from rank ``src`` to rank ``dst``, which adds them (``reduce``) or stores them."""

    src: int
    dst: int
    first: int
    width: int = 1
    step: int = 0
    reduce: bool = False

    def chunk(self, repetition: int, n_chunks: int) -> int:
        """Return the first chunk sent in the given *repetition* (from 0) of the round."""
        return (self.first + repetition * self.step) % n_chunks


@dataclass(frozen=True, slots=True)
class Local:
    """Memory traffic of ``rank`` once a round has arrived: bytes read and written, in units of a chunk."""

    rank: int
    chunks_touched: float


@dataclass(frozen=True, slots=True)
class Round:
    """Sends that start together, run ``repeat`` times; each repetition starts when the previous one has ended."""

    sends: tuple[Send, ...]
    repeat: int = 1
    label: str = ""
    local: tuple[Local, ...] = ()


@dataclass(frozen=True, slots=True)
class Schedule:
    """A sequence of rounds of ranks 0 to ``n_ranks`` - 1; numbers from there on are helpers (the CPU, servers)."""

    n_ranks: int
    n_chunks: int
    rounds: tuple[Round, ...]
