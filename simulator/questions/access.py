"""Accesses to a device's memory: :class:`AccessQuestion`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from simulator.questions.checks import From, check
from simulator.questions.where import Where

AccessKind = Literal["stream", "strided", "random", "gather", "chase", "shared"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessQuestion:
    """The time of memory accesses: one pass over ``size_bytes``, or one of many accesses within that much memory.

    Kinds of a whole pass: ``stream`` goes through ``reads`` input and ``writes`` output arrays, each an equal part of
    the bytes; ``gather`` picks ``rows`` of ``row_bytes`` each from a table.  Kinds of one access: ``strided``, an
    element every ``stride_bytes``, ``backward`` if set; ``random``, ``each_bytes`` at a random address with
    ``outstanding`` accesses in flight; ``chase``, a load whose address comes from the load before it, in random order;
    ``shared``, ``cores`` that take turns writing, each to its own part of the bytes.

    ``node`` is the memory: ``local`` to the core, ``remote`` (of the next socket), or a device of the machine.
    ``misaligned``: no element starts at a multiple of its size.  ``page_bytes``: the size of the memory's pages.
    ``state``: another core has ``modified`` a shared line, or only read it (``unchanged``).

    For GPUs, ``level`` is the memory that a chase goes through.  ``resident`` threads run at once, in blocks of
    ``block_threads``; 0 means as many as the device holds.  ``in_graph``: the calls come from a captured graph;
    ``persistent``: one kernel stays on the device and waits for all its blocks between passes.
    """

    where: Where
    kind: AccessKind
    size_bytes: Annotated[float, From(0, above=True)]
    device: str | None = None
    reads: int = 1
    writes: int = 0
    element_bytes: int = 8
    rows: int = 0
    row_bytes: int = 0
    stride_bytes: Annotated[float, From(0, above=True)] = 64.0
    each_bytes: Annotated[float, From(0, above=True)] = 8.0
    outstanding: int = 1
    cores: int = 2
    state: Literal["modified", "unchanged"] = "modified"
    node: str = "local"
    page_bytes: Annotated[float, From(0, above=True)] = 4096.0
    level: Literal["global", "scratchpad"] = "global"
    resident: int = 0
    block_threads: int = 0
    backward: bool = False
    misaligned: bool = False
    threads: int | None = None
    in_graph: bool = False
    persistent: bool = False

    def __post_init__(self) -> None:
        check(self)
