"""Groups of ranks that do the same collective at the same time: :class:`Bundle`."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from simulator.collectives.communicator import Communicator
from simulator.collectives.request import Strategy
from simulator.plan.plan import Fragment
from simulator.workload.collective import Collective

__all__ = ["Bundle"]


class Bundle:
    """*groups* of equal size, no rank in two of them, which share links where they are on the same machines.

    ``lie`` is how they lie on their machines: bundles that lie alike take equally long.
    """

    def __init__(self, groups: Sequence[Communicator], lie: Hashable = None) -> None:
        self.groups = tuple(groups)
        self.lie = lie

    @property
    def n_ranks(self) -> int:
        """Ranks of each group."""
        return self.groups[0].n_ranks

    def collective(
        self, op: Collective, size_bytes: float, strategy: str | Strategy = "nccl", *, loads_on: Sequence[int] = ()
    ) -> Fragment:
        """Return the collective *op* of *size_bytes* of all groups at once; as :meth:`Communicator.collective`."""
        from simulator.collectives.fragment import fragment_of

        first, *others = self.groups
        if not others:
            return first.collective(op, size_bytes, strategy, loads_on=loads_on)
        key = ("bundle", tuple(g.ranks for g in others), op, size_bytes, strategy, tuple(loads_on))
        return first.once(key, lambda: fragment_of(self.groups, op, size_bytes, strategy, loads_on))
