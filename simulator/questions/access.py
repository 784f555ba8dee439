"""Accesses to a device's memory: :class:`AccessQuestion`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.questions.where import Where

__all__ = ["AccessKind", "AccessQuestion"]

AccessKind = Literal["stream", "strided", "random", "gather", "chase", "shared"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessQuestion:
    """How long accesses take: a pass over ``size_bytes``, or one access of many that touch so much memory.

    ``stream``: a pass, of which ``reads`` and ``writes`` are arrays, each a share of the bytes.  ``gather``: ``rows``
    of ``row_bytes`` each, picked from a table.  The others are of one access: ``strided``: an element every
    ``stride_bytes``, forward or ``backward``.  ``random``: ``each_bytes`` at any place, ``outstanding`` of them under
    way at once.  ``chase``: a load that waits for the one before it, in no order.  ``shared``: ``cores`` that write in
    turn, each its own part of the bytes.

    ``node``: where the memory is: ``local`` to the core, ``remote`` (the next socket's), or a device of the machine.
    ``misaligned``: elements begin where no multiple of their size is.  ``page_bytes``: of the pages that memory is
    divided into.  ``state``: of a shared line: another core has ``modified`` it, or only read it (``unchanged``).

    Of a GPU: ``level`` says which memory a chase goes through; ``resident`` threads are under way at once, in blocks of
    ``block_threads``, as many as it holds where these are 0.  ``in_graph``: calls come from a captured graph;
    ``persistent``: one kernel stays and waits for all its blocks between passes.
    """

    where: Where
    kind: AccessKind
    size_bytes: float
    device: str | None = None
    reads: int = 1
    writes: int = 0
    element_bytes: int = 8
    rows: int = 0
    row_bytes: int = 0
    stride_bytes: float = 64.0
    each_bytes: float = 8.0
    outstanding: int = 1
    cores: int = 2
    state: Literal["modified", "unchanged"] = "modified"
    node: str = "local"
    page_bytes: float = 4096.0
    level: Literal["global", "scratchpad"] = "global"
    resident: int = 0
    block_threads: int = 0
    backward: bool = False
    misaligned: bool = False
    threads: int | None = None
    in_graph: bool = False
    persistent: bool = False
