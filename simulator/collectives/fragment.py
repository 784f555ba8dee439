"""A collective as a part of a larger plan, and its load on GPUs that compute at the same time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simulator.collectives.communicator import Communicator
from simulator.collectives.request import Request, Strategy
from simulator.network.machine import Node
from simulator.plan.merge import merge
from simulator.plan.plan import Flow, Fragment, Plan, Resource
from simulator.topology.parts import GpuPart
from simulator.workload.collective import Collective

__all__ = ["fragment_of"]


def fragment_of(
    groups: Sequence[Communicator],
    op: Collective,
    size_bytes: float,
    strategy: Strategy,
    loads_on: Mapping[int, float],
) -> Fragment:
    """Return the collective *op* of *size_bytes*, run by *strategy* in all *groups* at once.

    The arguments are those of :meth:`simulator.collectives.bundle.Bundle.collective`, and so are the errors.
    """
    machine = groups[0].machine
    if op == "send-recv" and len(groups) > 1 and groups[0].n_ranks == 2:  # pairs: one exchange among all
        whole = Communicator(machine, [rank for group in groups for rank in group.ranks], groups[0].router)
        pairs = tuple((i ^ swap, i ^ 1 ^ swap) for i in range(0, whole.n_ranks, 2) for swap in (0, 1))
        plan = strategy.plan(Request(whole, op, size_bytes, pairs=pairs))
    else:
        plan = merge([strategy.plan(Request(group, op, size_bytes)) for group in groups])
    loads: list[tuple[Resource, float]] = []
    used_s: list[tuple[Resource, float]] = []
    channels = int(plan.facts.get("channels", 0))
    for index, memory_passes in loads_on.items():
        node = machine.nodes[index]
        if isinstance(node.part, GpuPart):
            if channels and node.part.sm_count:  # each channel is a thread block on its own multiprocessor
                loads.append((node.multiprocessors, min(1.0, channels / node.part.sm_count)))
            used_s.append((node.memory, _memory_s(node, node.part, plan, memory_passes)))
    return Fragment(plan, tuple(loads), tuple(used_s))


def _memory_s(node: Node, part: GpuPart, plan: Plan, passes: float) -> float:
    """Return the time for which *plan* occupies the full memory bandwidth of the GPU *node*, in seconds.

    *passes*: bytes of memory traffic for a byte that crosses its ports.
    """
    crossing = 0.0
    for task in plan.tasks:
        for flow in task.parts:
            if isinstance(flow, Flow):
                for _ in range(_times_at(flow, node.index)):
                    crossing += flow.bytes * flow.count * task.repeat
    return passes * crossing / part.memory_bandwidth if part.memory_bandwidth else 0.0


def _times_at(flow: Flow, node: int) -> int:
    """Return how many of the flows represented by *flow* start or end at *node*."""
    if flow.at is None:
        return int(node in (flow.route.src, flow.route.dst))
    return flow.at.sites.times_at(flow.route, flow.at, node)
