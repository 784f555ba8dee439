"""Collectives within a larger plan: groups that run one at once (:class:`ConcurrentGroups`), and a part of one.

A collective as a part is :class:`FragmentLoads`; what it loads on the GPUs that compute meanwhile, :class:`GpuLoads`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property

from simulator.collectives.communicator import Communicator, Request, Strategy
from simulator.plan.alike import Alike
from simulator.plan.plan import Flow, Fragment, Plan, merge
from simulator.records import dataclass, field
from simulator.topology.parts import GpuPart
from simulator.workload import Collective


class GpuLoads:
    """The loads on each GPU of *plan*, which *bundle* runs; counted on first use."""

    def __init__(self, bundle: ConcurrentGroups, plan: Plan) -> None:
        self.machine, self._bundle, self._plan = bundle.groups[0].machine, bundle, plan

    @cached_property
    def _moved(self) -> tuple[dict[int, float], dict[Alike, list[tuple[Flow, float]]]]:
        """The bytes that cross the ports of each node; and the flows that stand for several, with their bytes."""
        single: dict[int, float] = {}
        several: dict[Alike, list[tuple[Flow, float]]] = {}
        for task in self._plan.tasks:
            for flow in task.parts:
                if not isinstance(flow, Flow):
                    continue
                n_bytes = flow.bytes * flow.count * task.repeat
                if flow.at is not None:
                    several.setdefault(flow.at.sites, []).append((flow, n_bytes))
                    continue
                for node in {flow.route.src, flow.route.dst}:
                    single[node] = single.get(node, 0.0) + n_bytes
        return single, several

    @property
    def kind(self) -> Hashable:
        """What :meth:`place` depends on: for equal kinds it is equal."""
        single, several = self._moved
        return id(self._bundle.stand_ins), bool(single), *several

    def place(self, node: int) -> Hashable:
        """Return a key that *node* shares only with nodes of equal load."""
        single, several = self._moved
        node = self._bundle.stand_ins.get(node, node)
        return node if single else tuple([sites.place(node) for sites in several])

    def on(self, node: int) -> tuple[float, float]:
        """Return the share of *node*'s multiprocessors that channels take, and the seconds of its memory."""
        node = self._bundle.stand_ins.get(node, node)
        part = self.machine.nodes[node].part
        single = self._moved[0].get(node, 0.0)
        crossing = sum((at.get(sites.place(node), 0.0) for sites, at in self._crossing_at), single)
        if not isinstance(part, GpuPart) or not crossing:
            return 0.0, 0.0
        channels = int(self._plan.facts.get("channels", 0))
        taken = min(1.0, channels / part.sm_count) if part.sm_count else 0.0
        return taken, crossing / part.memory_bandwidth if part.memory_bandwidth else 0.0

    def most(self, nodes: Iterable[int]) -> tuple[float, float]:
        """Return the greatest share, and the most seconds, of :meth:`on` any of *nodes*."""
        found = [self.on(node) for node in {self.place(node): node for node in nodes}.values()]
        return max(share for share, _ in found), max(seconds for _, seconds in found)

    @cached_property
    def _crossing_at(self) -> list[tuple[Alike, dict[Hashable, float]]]:
        """The bytes of flows that stand for several which cross the ports of a node, by its place in their sites."""
        found = []
        for sites, flows in self._moved[1].items():
            at: dict[Hashable, float] = {}
            for flow, n_bytes in flows:
                assert flow.at is not None
                for place, times in sites.ends(flow.route, flow.at).items():
                    at[place] = at.get(place, 0.0) + times * n_bytes
            found.append((sites, at))
        return found


class ConcurrentGroups:
    """Disjoint *groups* of equal size that run a collective at once, and share links if they share machines.

    ``lie`` describes the groups' positions on their machines: bundles with equal ``lie`` take equally long.  *others*
    are such bundles, for which this one stands: their nodes, in the order of this one's.
    """

    def __init__(
        self, groups: Sequence[Communicator], lie: Hashable = None, others: Sequence[Sequence[int]] = ()
    ) -> None:
        self.groups, self.lie, self._others = tuple(groups), lie, others

    @property
    def n_ranks(self) -> int:
        """The number of ranks in each group."""
        return self.groups[0].n_ranks

    def all_nodes(self) -> list[Sequence[int]]:
        """Return the nodes of each group, also of the bundles for which this one stands."""
        size, own = self.n_ranks, [group.ranks for group in self.groups]
        return [*own, *(nodes[i : i + size] for nodes in self._others for i in range(0, len(nodes), size))]

    @cached_property
    def stand_ins(self) -> dict[int, int]:
        """By node of the other bundles: the node of this one that does the same."""
        own = [node for group in self.groups for node in group.ranks]
        return {node: first for nodes in self._others for node, first in zip(nodes, own, strict=True)}

    def collective(
        self, op: Collective, size_bytes: float, strategy: Strategy, *, loads_on: Mapping[int, float] | None = None
    ) -> FragmentLoads:
        """Return *op* of nccl-tests' *size_bytes* in all groups at once, a fragment that is kept; raises Unsuitable.

        Links are always loaded.  *loads_on*: GPUs whose multiprocessors and memory are too, each with the bytes of
        memory traffic for a byte that crosses its ports.
        """
        first, *others = self.groups
        asked = tuple(g.ranks for g in others), op, size_bytes, strategy
        plan = first.once(("plan", *asked), lambda: planned(self.groups, op, size_bytes, strategy))
        key = ("bundle", *asked, id(self) if self._others else None)  # kept alive by the loads
        found = first.once(key, lambda: FragmentLoads(plan, gpu_loads=GpuLoads(self, plan)))
        return found if not loads_on else first.once((*key, tuple(loads_on.items())), lambda: found.loading(loads_on))


@dataclass(frozen=True, eq=False)
class FragmentLoads(Fragment):
    """A collective that loads some GPUs; ``gpu_loads`` has its loads on any."""

    gpu_loads: GpuLoads = field(kw_only=True)

    def loading(self, nodes: Mapping[int, float]) -> FragmentLoads:
        """Return the same collective, which loads *nodes*, as of :meth:`ConcurrentGroups.collective`."""
        machine = self.gpu_loads.machine
        found = [(machine.nodes[node], passes, *self.gpu_loads.on(node)) for node, passes in nodes.items()]
        loads = tuple((node.multiprocessors, taken) for node, _, taken, _ in found if taken)
        used_s = tuple((node.memory, passes * seconds) for node, passes, _, seconds in found if seconds)
        return FragmentLoads(self.plan, loads, used_s, gpu_loads=self.gpu_loads)


def planned(groups: Sequence[Communicator], op: Collective, size_bytes: float, strategy: Strategy) -> Plan:
    """Return the plan of *op* by *strategy* in all *groups* at once, as :meth:`ConcurrentGroups.collective`."""
    if op == "send-recv" and len(groups) > 1 and groups[0].n_ranks == 2:  # pairs: one exchange among all
        whole = Communicator(groups[0].machine, [rank for group in groups for rank in group.ranks], groups[0].router)
        pairs = tuple((i ^ swap, i ^ 1 ^ swap) for i in range(0, whole.n_ranks, 2) for swap in (0, 1))
        return strategy.plan(Request(whole, op, size_bytes, pairs=pairs))
    return merge([strategy.plan(Request(group, op, size_bytes)) for group in groups])
