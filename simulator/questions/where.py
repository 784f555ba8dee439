"""Where something happens: which machine, how many of it, with which software."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

__all__ = ["CPU_LIBRARIES", "NCCL_TODAY", "TODAY", "CpuLibrary", "Neighbour", "SlowLink", "Software", "Where"]

NCCL_TODAY = (2, 30)
CpuLibrary = Literal["onednn", "blas"]
CPU_LIBRARIES: tuple[CpuLibrary, ...] = get_args(CpuLibrary)


@dataclass(frozen=True, slots=True)
class SlowLink:
    """The links between two devices, both ways, at ``factor`` of what they give; 0: there are none.

    ``ends`` are the names of both with ``-`` between (``gpu0-gpu1``).  With a time it is so from ``from_s`` to
    ``until_s`` after the start, and what is chosen before (rings, routes) stays as chosen.
    """

    ends: str
    factor: float
    from_s: float = 0.0
    until_s: float = math.inf

    @property
    def is_passing(self) -> bool:
        """Whether it begins or ends while something runs."""
        return self.from_s > 0.0 or self.until_s < math.inf


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another job that moves ``rate_Bps`` from the first of two devices to the second, all the time."""

    ends: str
    rate_Bps: float


@dataclass(frozen=True, slots=True)
class Where:
    """A machine: ``topology`` is a path, a built-in name, or a GPU or CPU of the catalogue by itself.

    So many ``nodes`` of it are joined, by links of the part ``fabric`` in place of the adapters' own.  ``slow_links``
    are not as the file says, and ``neighbours`` use what the rest then has no more.
    """

    topology: str
    nodes: int | None = None
    fabric: str | None = None
    slow_links: tuple[SlowLink, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()


@dataclass(frozen=True, slots=True)
class Software:
    """Libraries and their versions: today's unless said.

    ``cpu_library`` is what kernels of CPUs are from; ``blas``: as frameworks of 2016 used it.
    """

    nccl: tuple[int, int] = NCCL_TODAY
    cpu_library: CpuLibrary = "onednn"


TODAY = Software()
