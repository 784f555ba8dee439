"""Collectives in two levels, inside machines and between them: ``hierarchical``.

If all N machines have g ranks each, an all-reduce of S bytes is a reduce-scatter inside each machine, (g-1)/g S/B_i; an
all-reduce of a shard S/g between machines for each local rank, 2(N-1)/N (S/g)/B_x; and an all-gather inside each
machine, (g-1)/g S/B_i.  Each level uses rings.  (Cho et al., BlueConnect: decomposing all-reduce for deep learning on
heterogeneous network hierarchy, MLSys 2019, section 3, with two levels.)

If machines have different numbers of ranks, each machine reduces to one rank, its leader; the leaders exchange whole
buffers and broadcast inside their machines.

All machines run the rounds of a phase in step, and so do the exchanges of the local ranks' shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

from simulator.collectives.communicator import Equal
from simulator.collectives.embedding import rings_by_host, subset
from simulator.collectives.lower import best_chunk_count
from simulator.collectives.request import Planned, Request, Unsuitable
from simulator.collectives.rings import add_rings, first_lap
from simulator.collectives.search.rings import find_rings, round_rates
from simulator.plan.alike import PairGroup
from simulator.plan.flow import FlowData, Region, block, joined_regions
from simulator.plan.plan import Activity, Flow, Plan, PlanBuilder, in_step
from simulator.records import replace
from simulator.workload import Collective

# The collectives inside, between, and inside machines again; "" is none.  Scatter and gather: root's machine only.
PHASES: dict[Collective, tuple[str, Collective, str]] = {
    "all-reduce": ("reduce-scatter", "all-reduce", "all-gather"),
    "reduce-scatter": ("reduce-scatter", "reduce-scatter", ""),
    "all-gather": ("", "all-gather", "all-gather"),
    "broadcast": ("scatter", "broadcast", "all-gather"),
    "reduce": ("reduce-scatter", "reduce", "gather"),
}
_BY_LEADERS: dict[Collective, tuple[str, Collective, str]] = {
    "all-reduce": ("reduce", "all-reduce", "broadcast"),
    "broadcast": ("", "broadcast", "broadcast"),
    "reduce": ("reduce", "reduce", ""),
}


class _Levels:
    """The machines; ``groups`` has, for each shard, one rank of each machine: the *leaders* alone, or all."""

    def __init__(self, builder: PlanBuilder, request: Request, *, leaders: bool) -> None:
        self.builder, self.request, self.hosts = builder, request, request.by_host()
        self.inner = rings_by_host(request)
        self.home = request.machine.nodes[request.ranks[request.root]].host
        self.leaders = {h: request.root if request.root in ranks else ranks[0] for h, ranks in self.hosts.items()}
        groups = [tuple(self.leaders.values())] if leaders else zip(*self.hosts.values(), strict=True)
        self.groups = [list(group) for group in groups]

    def block(self, group: int, member: int) -> Region:
        """Return the part of the buffer of a group's member: its own if sharded, else groups' parts are contiguous."""
        n = len(self.groups) * len(self.hosts)
        if self.request.collective in ("reduce-scatter", "all-gather"):
            return block(self.groups[group][member], n)
        return block(group * len(self.hosts) + member, n)

    def share(self, group: int) -> Region:
        """Return the part of the buffer that the ranks of *group* exchange; for leaders, the whole buffer."""
        return joined_regions(self.block(group, member) for member in range(len(self.hosts)))

    def inside(self, what: str, after: Sequence[int]) -> list[int]:
        """Add the collective *what* of the whole buffer in each machine; return the numbers of the last tasks."""
        if what in ("scatter", "gather"):
            return [self._direct(what, after)] if len(self.hosts[self.home]) > 1 else list(after)
        plans = []
        equal = Equal.of(self.request.group) if len(self.groups) > 1 else None
        for host, ranks in list(self.hosts.items())[: 1 if equal else None]:
            if what and len(ranks) > 1:
                part = subset(self.request, ranks, collective=cast(Collective, what), root=self.leaders[host])
                own = PlanBuilder()
                shares = self.share if len(self.groups) > 1 else None  # leaders hold the whole buffer
                add_rings(own, part, self.inner[host], size_bytes=self.request.size_bytes, blocks=shares)
                plans.append(own.build())
        if equal is not None:
            plans = [self._on_each(plan, equal.within) for plan in plans]
        return in_step(self.builder, plans, "inside", after) if plans else list(after)

    def _on_each(self, first: Plan, within: PairGroup) -> Plan:
        """Return the plan of all equal machines, given that of the *first*."""

        def carries(task: Activity, repetition: int) -> list[FlowData]:
            assert task.carries is not None
            return [carried for carried in task.carries(repetition) for _ in within.pairs]

        tasks = []
        for task in first.tasks:
            parts = tuple(replace(part, at=within) for part in task.parts if isinstance(part, Flow))
            tasks.append(task._replace(parts=parts, carries=partial(carries, task)))
        nodes, found = self.request.ranks, [(ranks, ring) for h, ranks in self.hosts.items() for ring in self.inner[h]]
        rings = tuple(tuple(nodes[ranks[i]] for i in ring.order) for ranks, ring in found)
        return replace(first, tasks=tuple(tasks), rings=rings)

    def _direct(self, what: str, after: Sequence[int]) -> int:
        """Add direct sends of a shard between the root and each other rank of its machine; return the task's number."""
        nodes, root, ranks = self.request.ranks, self.request.root, self.hosts[self.home]
        ends = [(root, r) if what == "scatter" else (r, root) for r in ranks if r != root]
        share = self.request.size_bytes / len(ranks)
        flows = [Flow(self.request.router.route(nodes[a], nodes[b]), share) for a, b in ends]
        others = [group for group, rank in enumerate(ranks) if rank != root]

        def carries(_: int) -> list[FlowData]:
            return [FlowData(self.share(group)) for group in others]

        return self.builder.transfer(what, flows, stream=f"node{self.home}.{what}", after=after, carries=carries)

    def between(self, what: Collective, after: Sequence[int]) -> list[int]:
        """Add the collective *what* between machines, for all groups at once; return the numbers of the last tasks."""
        home = list(self.hosts).index(self.home)
        parts = [subset(self.request, group, collective=what, root=group[home]) for group in self.groups]
        found = [find_rings(part.group, both_directions=False)[0] for part in parts]
        laps = max(1, len(self.request.group.equal_hosts()))
        rate = min(round_rates(self.request.group, [ring.routes for ring in found], laps))  # all groups run at once
        latency_s = max(route.latency_s for ring in found for route in first_lap(self.request.group, ring))
        share = self.request.size_bytes / len(self.groups)
        n_chunks = best_chunk_count(share, len(self.hosts) - 2, latency_s, 1 / rate)
        plans = []
        for number, (part, ring) in enumerate(zip(parts, found, strict=True)):
            own = PlanBuilder()
            add_rings(own, part, [ring], size_bytes=share, n_chunks=n_chunks, blocks=partial(self.block, number))
            plans.append(own.build())
        return in_step(self.builder, plans, "between", after)


def _write(builder: PlanBuilder, request: Request) -> None:
    """Add both levels; raises Unsuitable on a single machine, and for collectives without a hierarchical form."""
    hosts = request.by_host()
    if len(hosts) < 2:
        raise Unsuitable("it needs several nodes, and all ranks are on one")
    sizes = {len(ranks) for ranks in hosts.values()}
    table = PHASES if len(sizes) == 1 else _BY_LEADERS
    if request.collective not in table:
        why = "" if request.collective not in PHASES else " where nodes have different numbers of ranks"
        raise Unsuitable(f"it has no form for {request.collective}{why}; sharded or ring do it")
    first, middle, last = table[request.collective]
    if table is not PHASES:
        builder.notes.append("nodes have different numbers of ranks: one rank of each exchanges for the others")
    levels = _Levels(builder, request, leaders=table is not PHASES)
    levels.inside(last, levels.between(middle, levels.inside(first, ())))
    builder.facts["node_count"] = len(hosts)


HIERARCHICAL = Planned(
    "hierarchical", "reduce-scatter inside each node, exchange between nodes, all-gather inside", _write
)
