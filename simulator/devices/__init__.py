"""What kernels cost on devices: the time of each (:class:`KernelCost`), in seconds, and what bounds it."""

from typing import Literal

from simulator.records import dataclass

Bound = Literal["compute", "memory", "latency"]


@dataclass(frozen=True, slots=True)
class KernelCost:
    """The cost of one kernel on the device, from its start to its end."""

    time_s: float
    bound: Bound  # what takes most of the time
    flop: float
    bytes: float
    detail: str = ""  # the implementation: tile, algorithm
    known: float = 0.0  # share of its error's variance that measured neighbours explain, from 0 to 1


def bound_of(time_s: float, compute_s: float, memory_s: float) -> Bound:
    """Return what bounds a kernel: latency where neither arithmetic nor memory accounts for half of *time_s*."""
    if max(compute_s, memory_s) < time_s / 2:
        return "latency"
    return "compute" if compute_s > memory_s else "memory"
