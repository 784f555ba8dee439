"""A collective as a part of a larger plan: :class:`Exchanging`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from simulator.collectives.communicator import Communicator
from simulator.collectives.gpu_loads import GpuLoads
from simulator.collectives.request import Request, Strategy
from simulator.plan.merge import merge
from simulator.plan.plan import Fragment, Plan
from simulator.workload.collective import Collective


@dataclass(frozen=True, eq=False)
class Exchanging(Fragment):
    """A collective that loads some GPUs; ``gpu_loads`` has its loads on any."""

    gpu_loads: GpuLoads = field(kw_only=True)

    def loading(self, nodes: Mapping[int, float]) -> Exchanging:
        """Return the same collective, which loads *nodes*, as of :meth:`Bundle.collective`."""
        machine = self.gpu_loads.machine
        found = [(machine.nodes[node], passes, *self.gpu_loads.on(node)) for node, passes in nodes.items()]
        loads = tuple((node.multiprocessors, taken) for node, _, taken, _ in found if taken)
        used_s = tuple((node.memory, passes * seconds) for node, passes, _, seconds in found if seconds)
        return Exchanging(self.plan, loads, used_s, gpu_loads=self.gpu_loads)


def planned(groups: Sequence[Communicator], op: Collective, size_bytes: float, strategy: Strategy) -> Plan:
    """Return the plan of the collective *op* of *size_bytes*, run by *strategy* in all *groups* at once.

    The arguments are those of :meth:`simulator.collectives.bundle.Bundle.collective`, and so are the errors.
    """
    if op == "send-recv" and len(groups) > 1 and groups[0].n_ranks == 2:  # pairs: one exchange among all
        ranks = [rank for group in groups for rank in group.ranks]
        whole = Communicator(groups[0].machine, ranks, groups[0].router)
        pairs = tuple((i ^ swap, i ^ 1 ^ swap) for i in range(0, whole.n_ranks, 2) for swap in (0, 1))
        return strategy.plan(Request(whole, op, size_bytes, pairs=pairs))
    return merge([strategy.plan(Request(group, op, size_bytes)) for group in groups])
