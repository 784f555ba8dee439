"""Where something happens: which machine, how many of it, with which software."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

__all__ = ["CPU_LIBRARIES", "NCCL_TODAY", "TODAY", "CpuLibrary", "Software", "Where"]

NCCL_TODAY = (2, 30)
CpuLibrary = Literal["onednn", "blas"]
CPU_LIBRARIES: tuple[CpuLibrary, ...] = get_args(CpuLibrary)


@dataclass(frozen=True, slots=True)
class Where:
    """A machine: ``topology`` is a path, a built-in name, or a GPU or CPU of the catalogue by itself.

    So many ``nodes`` of it are joined, by links of the part ``fabric`` in place of the adapters' own.
    """

    topology: str
    nodes: int | None = None
    fabric: str | None = None


@dataclass(frozen=True, slots=True)
class Software:
    """Libraries and their versions: today's unless said.

    ``cpu_library`` is what kernels of CPUs are from; ``blas``: as frameworks of 2016 used it.
    """

    nccl: tuple[int, int] = NCCL_TODAY
    cpu_library: CpuLibrary = "onednn"


TODAY = Software()
