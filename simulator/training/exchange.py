"""A communication stream of a step: collectives of the same groups, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.collectives.bundle import Bundle
from simulator.collectives.request import Strategy
from simulator.plan.plan import PlanBuilder
from simulator.workload.collective import Collective

__all__ = ["STREAM", "Exchange", "Exchanged"]

STREAM = "communication"


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What an activity of such a stream is: a collective of so many bytes, in a micro-batch."""

    op: Collective
    size_bytes: float
    micro_batch: int


class Exchange:
    """Adds collectives of all *bundles* of groups at once to a plan, on *stream*; they load the GPUs *loads_on*.

    *once*: equal copies go once to each machine.
    """

    def __init__(
        self,
        builder: PlanBuilder,
        bundles: Sequence[Bundle],
        strategy: str | Strategy,
        loads_on: Sequence[int] = (),
        *,
        stream: str = STREAM,
        once: bool = False,
    ) -> None:
        self.builder = builder
        self.n_ranks = bundles[0].n_ranks
        self._bundles = tuple(bundles)
        self._strategy = strategy
        self._loads_on = tuple(loads_on)
        self._stream = stream
        group = bundles[0].groups[0]
        self._machines = len({group.machine.locate(rank)[1] for rank in group.ranks}) if once else 1

    def sent_share(self, copies: int) -> float:
        """Return the share of bytes that is sent where so many copies of each go to ranks at random.

        Of n machines (1 - (1 - 1/n) ** copies) n get any of them; on one machine each rank gets its own.
        """
        n = self._machines
        return 1.0 if n == 1 else n * (1.0 - (1.0 - 1.0 / n) ** copies) / copies

    def __call__(self, op: Collective, size_bytes: float, after: Sequence[int], micro_batch: int = 0) -> int:
        """Add *op* of *size_bytes*, not before *after*; return its activity.  Raises Unsuitable."""
        fragments = [
            bundle.collective(op, float(size_bytes), self._strategy, loads_on=self._loads_on)
            for bundle in self._bundles
        ]
        about = Exchanged(op, size_bytes, micro_batch)
        return self.builder.add(op, fragments, stream=self._stream, after=after, about=about)
