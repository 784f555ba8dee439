"""What a kernel costs: seconds on the device, and what bounds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Bound", "KernelCost"]

Bound = Literal["compute", "memory", "latency"]


@dataclass(frozen=True, slots=True)
class KernelCost:
    """What one kernel costs on the device, from its start to its end.

    ``bound`` says what the time is spent on; ``detail`` how it is done (the tile, the algorithm).
    """

    time_s: float
    bound: Bound
    flop: float
    bytes: float
    detail: str = ""
