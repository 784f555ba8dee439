"""Blocks read from a disk or written to it: :class:`DiskQuestion`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from simulator.questions.where import Where

__all__ = ["DISK_ACCESSES", "DiskAccess", "DiskQuestion", "Track"]

DiskAccess = Literal["read_sequential", "read_random", "write_sequential", "write_random"]
Track = Literal["", "outer", "inner"]
DISK_ACCESSES: tuple[DiskAccess, ...] = get_args(DiskAccess)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskQuestion:
    """How long a block takes, one after the other by each of ``threads``.

    ``cached``: memory serves all of it; ``hit_percent``: so much of it.  ``sustained``: a volume's credits are spent.
    ``disk``: which of the machine's, the first where not said.  ``track``: where on a disk that turns the blocks lie.
    """

    where: Where
    kind: DiskAccess
    block_bytes: float
    threads: int = 1
    cached: bool = False
    hit_percent: int = 0
    sustained: bool = False
    disk: str = ""
    track: Track = ""
