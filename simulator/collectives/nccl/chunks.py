"""Chunk sizes of NVLS, and the number of rounds of chunks in a buffer.

As in NVIDIA/nccl@5067397c ``src/enqueue.cc`` (calcCollChunking): in each round, each channel moves one chunk per head.
If a buffer fills few rounds of all channels and heads, NCCL uses smaller chunks.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.collectives.nccl import tables as t


def largest_chunk(*, tree: bool, n_hosts: int, on_efa: bool) -> int:
    """Return the chunk size for large buffers, in bytes: compiled into NCCL, or set by the EFA plugin."""
    if on_efa:
        return t.NVLS_CHUNK_EFA
    return t.NVLS_TREE_CHUNK_FAR if tree and n_hosts >= t.NVLS_TREE_FAR_HOSTS else t.NVLS_CHUNK


def rounds_from(size_bytes: float, at_once: int, largest: int, *, tree: bool) -> Sequence[tuple[float, float]]:
    """Return (bytes, rounds) for *size_bytes*, then for each larger size at which NCCL switches to larger chunks.

    *at_once*: chunks in flight, one per channel and head.
    *largest*: chunk size for large buffers, in bytes.

    The number of rounds drops where chunks grow, but measured times have no step there; the caller takes the shortest
    time of all entries.
    """
    chunk = largest
    found: list[tuple[float, float]] = []
    for rounds, smaller in t.NVLS_TREE_CHUNKS if tree else t.NVLS_CHUNKS:
        limit = float(rounds * at_once * chunk)
        if chunk > smaller and size_bytes < limit:
            found.insert(0, (limit, limit / (at_once * chunk)))
            chunk = smaller
    return [(size_bytes, size_bytes / (at_once * chunk)), *found]
