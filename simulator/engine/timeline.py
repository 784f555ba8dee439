"""Who did what, and when: what an executed plan leaves behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import compress, count

from simulator.network.machine import Machine
from simulator.plan.plan import Plan

__all__ = ["Span", "Timeline"]


@dataclass(frozen=True, slots=True)
class Span:
    """One task's time.

    ``round_s`` is the time of one round of a transfer (the first one); ``flow_ends_s`` when
    each of its flows had arrived, since the start of that round.
    """

    task: int
    start_s: float
    end_s: float
    round_s: float = 0.0
    flow_ends_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Timeline:
    """The result of an engine run; ``spans`` stand in the order of the plan's tasks."""

    machine: Machine
    plan: Plan
    spans: tuple[Span, ...]
    end_s: float
    link_bytes: tuple[float, ...]  # on the wire, by link
    resource_bytes: tuple[float, ...]  # by resource
    simulation_events: int

    def moved(self) -> Iterator[tuple[int, float]]:
        """Yield the resources that carried bytes, of perhaps a million, and how many."""
        values = self.resource_bytes
        return zip(compress(count(), values), compress(values, values), strict=False)
