"""Groups of ranks that run the same collective at the same time: :class:`Bundle`."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from simulator.collectives.communicator import Communicator
from simulator.collectives.fragment import fragment_of
from simulator.collectives.request import Strategy
from simulator.plan.plan import Fragment
from simulator.workload.collective import Collective

__all__ = ["Bundle"]


class Bundle:
    """Disjoint *groups* of equal size that run a collective at once, and share links if they share machines.

    ``lie`` describes the groups' positions on their machines: bundles with equal ``lie`` take equally long.
    """

    def __init__(self, groups: Sequence[Communicator], lie: Hashable = None) -> None:
        self.groups = tuple(groups)
        self.lie = lie

    @property
    def n_ranks(self) -> int:
        """The number of ranks in each group."""
        return self.groups[0].n_ranks

    def collective(
        self, op: Collective, size_bytes: float, strategy: Strategy, *, loads_on: Mapping[int, float] | None = None
    ) -> Fragment:
        """Return the collective *op* of *size_bytes*, run by all groups at once, as a fragment of a larger plan.

        The same arguments give the same object each time.

        *op*, *size_bytes*: as in nccl-tests (:mod:`simulator.workload.collective`).
        *loads_on*: the GPUs whose multiprocessors and memory the collective occupies, each with the bytes of memory
        traffic for a byte that crosses its ports; links are always loaded.

        Raises Unsuitable if the strategy does not fit.
        """
        first, *others = self.groups
        loads_on = loads_on or {}
        key = ("bundle", tuple(g.ranks for g in others), op, size_bytes, strategy, tuple(loads_on.items()))
        return first.once(key, lambda: fragment_of(self.groups, op, size_bytes, strategy, loads_on))
