"""How large the chunks of NVLS are, and in how many rounds of chunks a buffer goes.

As in NVIDIA/nccl@5067397c ``src/enqueue.cc`` (calcCollChunking): each channel moves a chunk for each head at a time,
and the fewer rounds of all channels and heads a buffer fills, the smaller NCCL makes the chunks.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.collectives.nccl import tables as t

__all__ = ["largest_chunk", "rounds_from"]


def largest_chunk(*, tree: bool, n_hosts: int, on_efa: bool) -> int:
    """Return the bytes of a chunk of a large buffer: what is compiled in, or what the plugin for EFA sets."""
    if on_efa:
        return t.NVLS_CHUNK_EFA
    return t.NVLS_TREE_CHUNK_FAR if tree and n_hosts >= t.NVLS_TREE_FAR_HOSTS else t.NVLS_CHUNK


def rounds_from(size_bytes: float, at_once: int, largest: int, *, tree: bool) -> Sequence[tuple[float, float]]:
    """Return (bytes, rounds) of *size_bytes*, and after it of the larger sizes from which on chunks are larger.

    *at_once*: chunks that are under way, one for each channel and head; *largest*: bytes of a chunk of a large buffer.
    Where chunks grow rounds get fewer at once.  No measured time steps there: who asks takes the shortest of all.
    """
    chunk = largest
    found: list[tuple[float, float]] = []
    for rounds, smaller in t.NVLS_TREE_CHUNKS if tree else t.NVLS_CHUNKS:
        limit = float(rounds * at_once * chunk)
        if chunk > smaller and size_bytes < limit:
            found.insert(0, (limit, limit / (at_once * chunk)))
            chunk = smaller
    return [(size_bytes, size_bytes / (at_once * chunk)), *found]
