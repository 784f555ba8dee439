"""What a kernel costs: seconds on the device, and what bounds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Bound", "KernelCost", "bound_of"]

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


def bound_of(time_s: float, compute_s: float, memory_s: float) -> Bound:
    """Return what most of a time is spent on: latency where neither arithmetic nor memory explains half of it."""
    if max(compute_s, memory_s) < time_s / 2:
        return "latency"
    return "compute" if compute_s > memory_s else "memory"
