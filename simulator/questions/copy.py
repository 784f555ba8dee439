"""A copy within a machine: :class:`CopyQuestion`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from simulator.questions.checks import From, check
from simulator.questions.where import Where

CopyKind = Literal["h2d", "d2h", "d2d", "h2h", "p2p"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyQuestion:
    """The time of a copy of ``size_bytes``, with a simultaneous copy in the other direction if ``both_ways``.

    ``h2d`` and ``d2h`` go between the host and GPU ``src``, ``p2p`` from GPU ``src`` to ``dst``, ``d2d`` and ``h2h``
    within the memory of a GPU or the host.  ``staged``: GPUs copy through host memory even if they could copy directly.
    ``waited``: the host waits for the copy, and its time counts.  ``threads`` copy within the host; None means all.
    ``socket``: the CPU whose memory is the host's end; by default the nearest.  ``fresh``: host memory is allocated but
    untouched before the copy writes it (pageable memory only).
    """

    where: Where
    kind: CopyKind
    size_bytes: Annotated[float, From(0, above=True)]
    src: int = 0
    dst: int = 0
    both_ways: bool = False
    pinned: bool = True
    staged: bool = False
    waited: bool = False
    threads: int | None = None
    fresh: bool = False
    socket: str = ""

    def __post_init__(self) -> None:
        check(self)
