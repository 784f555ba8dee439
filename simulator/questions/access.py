"""Accesses to a device's memory: :class:`AccessQuestion`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.questions.where import Where

__all__ = ["AccessKind", "AccessQuestion"]

AccessKind = Literal["stream", "gather", "chase"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessQuestion:
    """How long accesses take: a pass over ``size_bytes``, picks of rows from a table of so many, or one load.

    ``stream``: ``reads`` and ``writes`` are arrays, each a share of the bytes.  ``gather``: ``rows`` of ``row_bytes``
    each.  ``chase``: one of the loads that go through the bytes in no order, each waiting for the one before.
    ``in_graph``: a GPU's calls come from a captured graph.
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
    threads: int | None = None
    in_graph: bool = False
