"""Reads and writes of blocks on a disk: :class:`DiskQuestion`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from simulator.questions.checks import From, check
from simulator.questions.where import Where

DiskAccess = Literal["read_sequential", "read_random", "write_sequential", "write_random"]
Track = Literal["", "outer", "inner"]
DISK_ACCESSES: tuple[DiskAccess, ...] = get_args(DiskAccess)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskQuestion:
    """The time of one block if each of ``threads`` reads or writes blocks one after the other.

    ``cached``: memory serves all blocks; ``hit_percent``: this percentage of them.  ``sustained``: the burst credits of
    a cloud volume are spent.  ``disk``: its name; by default the machine's first.  ``track``: position of the blocks on
    a rotating disk.
    """

    where: Where
    kind: DiskAccess
    block_bytes: Annotated[float, From(0, above=True)]
    threads: int = 1
    cached: bool = False
    hit_percent: int = 0
    sustained: bool = False
    disk: str = ""
    track: Track = ""

    def __post_init__(self) -> None:
        check(self)
