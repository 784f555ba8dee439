"""The communication stream of a step: collectives of one group, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.collectives.communicator import Communicator
from simulator.collectives.request import Strategy
from simulator.plan.plan import PlanBuilder
from simulator.workload.collective import Collective

__all__ = ["STREAM", "Exchange", "Exchanged"]

STREAM = "communication"


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What an activity of this stream is: a collective of so many bytes, in a micro-batch."""

    op: Collective
    size_bytes: float
    micro_batch: int


class Exchange:
    """Adds collectives of *group* to a plan, on a stream of their own; they load the GPUs *loads_on*."""

    def __init__(
        self, builder: PlanBuilder, group: Communicator, strategy: str | Strategy, loads_on: Sequence[int] = ()
    ) -> None:
        self.builder = builder
        self._group = group
        self._strategy = strategy
        self._loads_on = tuple(loads_on)

    def __call__(self, op: Collective, size_bytes: float, after: Sequence[int], micro_batch: int = 0) -> int:
        """Add *op* of *size_bytes*, not before *after*; return its activity.  Raises Unsuitable."""
        fragment = self._group.collective(op, float(size_bytes), self._strategy, loads_on=self._loads_on)
        about = Exchanged(op, size_bytes, micro_batch)
        return self.builder.splice(fragment, label=op, stream=STREAM, after=after, about=about)
