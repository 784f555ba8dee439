"""A copy between places of a machine: :class:`CopyQuestion`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.questions.where import Where

__all__ = ["CopyKind", "CopyQuestion"]

CopyKind = Literal["h2d", "d2h", "d2d", "h2h", "p2p"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyQuestion:
    """How long a copy of ``size_bytes`` takes, and the other way at once where ``both_ways``.

    ``h2d`` and ``d2h`` go between the host and GPU ``src``, ``p2p`` from GPU ``src`` to ``dst``, ``d2d`` and ``h2h``
    within a GPU's or the host's memory.  ``staged``: between GPUs through host memory, whatever the machine could do.
    ``waited``: the host waits for it, and its part counts.  ``threads`` copy within the host, None all.
    ``socket``: the CPU beside whose memory the host's end lies; else the nearest.
    ``fresh``: the host's memory that is written has been allocated and not touched yet (pageable memory alone).
    """

    where: Where
    kind: CopyKind
    size_bytes: float
    src: int = 0
    dst: int = 0
    both_ways: bool = False
    pinned: bool = True
    staged: bool = False
    waited: bool = False
    threads: int | None = None
    fresh: bool = False
    socket: str = ""
