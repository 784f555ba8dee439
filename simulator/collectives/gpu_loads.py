"""What a collective loads on the GPUs that compute at the same time: :class:`GpuLoads`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import cached_property

from simulator.network.machine import Machine
from simulator.plan.alike import Alike
from simulator.plan.plan import Flow, Plan
from simulator.topology.parts import GpuPart


class GpuLoads:
    """The loads of *plan* on each GPU of *machine*; counted on first use.

    *stand_ins* returns nodes that do in an equal plan elsewhere what others do in this one.
    """

    def __init__(self, machine: Machine, plan: Plan, stand_ins: Callable[[], Mapping[int, int]]) -> None:
        self.machine = machine
        self._plan = plan
        self._find_stand_ins = stand_ins
        self._found: dict[Hashable, float] = {}

    @cached_property
    def _stand_ins(self) -> Mapping[int, int]:
        return self._find_stand_ins()

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
        return id(self._stand_ins), bool(single), *several

    def place(self, node: int) -> Hashable:
        """Return a key that *node* shares only with nodes of equal load."""
        single, several = self._moved
        node = self._stand_ins.get(node, node)
        return node if single else tuple([sites.place(node) for sites in several])

    def on(self, node: int) -> tuple[float, float]:
        """Return the share of *node*'s multiprocessors that is taken throughout, and seconds of its whole memory.

        Each channel is a thread block on a multiprocessor of its own.  The seconds are those in which the memory moves
        the bytes that cross its ports once.
        """
        node = self._stand_ins.get(node, node)
        part = self.machine.nodes[node].part
        crossing = self._crossing(node)
        if not isinstance(part, GpuPart) or not crossing:
            return 0.0, 0.0
        channels = int(self._plan.facts.get("channels", 0))
        taken = min(1.0, channels / part.sm_count) if part.sm_count else 0.0
        return taken, crossing / part.memory_bandwidth if part.memory_bandwidth else 0.0

    def most(self, nodes: Iterable[int]) -> tuple[float, float]:
        """Return the greatest share, and the most seconds, of :meth:`on` any of *nodes*."""
        found = [self.on(node) for node in {self.place(node): node for node in nodes}.values()]
        return max(share for share, _ in found), max(seconds for _, seconds in found)

    def _crossing(self, node: int) -> float:
        """Return the bytes that cross the ports of *node*."""
        single, several = self._moved
        crossing = single.get(node, 0.0)
        for sites, flows in several.items():
            key = sites, sites.place(node)
            if key not in self._found:
                self._found[key] = sum(
                    sites.times_at(flow.route, flow.at, node) * n_bytes
                    for flow, n_bytes in flows
                    if flow.at is not None
                )
            crossing += self._found[key]
        return crossing
