"""A schedule: rounds of sends between ranks, independent of any machine.

The user's buffer is cut into ``n_chunks`` equal chunks.  A send carries ``width`` chunks
from ``first`` on, cyclically; a round that repeats moves each send on by ``step`` chunks a
time.  So a whole ring of n ranks is two rounds, and tests can still follow each chunk.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Local", "Round", "Schedule", "Send"]


@dataclass(frozen=True, slots=True)
class Send:
    """``width`` chunks from rank ``src`` to rank ``dst``, added there (``reduce``) or stored."""

    src: int
    dst: int
    first: int
    width: int = 1
    step: int = 0
    reduce: bool = False

    def chunk(self, repetition: int, n_chunks: int) -> int:
        """Return the first chunk that is sent in that repetition of the round, from 0."""
        return (self.first + repetition * self.step) % n_chunks


@dataclass(frozen=True, slots=True)
class Local:
    """Work in the memory of ``rank`` once a round has arrived: bytes read and written, per byte of a chunk."""

    rank: int
    chunks_touched: float


@dataclass(frozen=True, slots=True)
class Round:
    """Sends that start together, ``repeat`` times; a repetition starts when the one before has ended."""

    sends: tuple[Send, ...]
    repeat: int = 1
    label: str = ""
    local: tuple[Local, ...] = ()


@dataclass(frozen=True, slots=True)
class Schedule:
    """Rounds one after the other.

    Ranks are 0 to ``n_ranks`` - 1; numbers from ``n_ranks`` on are helpers (the CPU, servers)
    that hold no input of their own.
    """

    n_ranks: int
    n_chunks: int
    rounds: tuple[Round, ...]
