"""Groups of ranks that run the same collective at the same time: :class:`Bundle`."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property

from simulator.collectives.communicator import Communicator
from simulator.collectives.fragment import Exchanging, planned
from simulator.collectives.gpu_loads import GpuLoads
from simulator.collectives.request import Strategy
from simulator.workload.collective import Collective


class Bundle:
    """Disjoint *groups* of equal size that run a collective at once, and share links if they share machines.

    ``lie`` describes the groups' positions on their machines: bundles with equal ``lie`` take equally long.  *others*
    are such bundles, for which this one stands: their nodes, in the order of this one's.
    """

    def __init__(
        self, groups: Sequence[Communicator], lie: Hashable = None, others: Sequence[Sequence[int]] = ()
    ) -> None:
        self.groups = tuple(groups)
        self.lie = lie
        self._others = others

    @property
    def n_ranks(self) -> int:
        """The number of ranks in each group."""
        return self.groups[0].n_ranks

    @cached_property
    def _stand_ins(self) -> dict[int, int]:
        """By node of the other bundles: the node of this one that does the same."""
        own = [node for group in self.groups for node in group.ranks]
        return {node: first for nodes in self._others for node, first in zip(nodes, own, strict=True)}

    def collective(
        self, op: Collective, size_bytes: float, strategy: Strategy, *, loads_on: Mapping[int, float] | None = None
    ) -> Exchanging:
        """Return the collective *op* of *size_bytes*, run by all groups at once, as a fragment of a larger plan.

        The same arguments give the same object each time.

        *op*, *size_bytes*: as in nccl-tests (:mod:`simulator.workload.collective`).
        *loads_on*: the GPUs whose multiprocessors and memory the collective occupies, each with the bytes of memory
        traffic for a byte that crosses its ports; links are always loaded.

        Raises Unsuitable if the strategy does not fit.
        """
        first, *others = self.groups
        asked = tuple(g.ranks for g in others), op, size_bytes, strategy
        plan = first.once(("plan", *asked), lambda: planned(self.groups, op, size_bytes, strategy))
        mine = id(self) if self._others else None  # kept alive by the loads
        key = ("bundle", *asked, mine)
        found = first.once(
            key, lambda: Exchanging(plan, gpu_loads=GpuLoads(first.machine, plan, lambda: self._stand_ins))
        )
        if not loads_on:
            return found
        return first.once((*key, tuple(loads_on.items())), lambda: found.loading(loads_on))
