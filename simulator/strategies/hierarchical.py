"""First inside each machine, then between machines: ``hierarchical``.

Where all N machines have g ranks each, an all-reduce of S bytes is a reduce-scatter inside
(g-1)/g S/B_i, an all-reduce of a share S/g for each local rank between the machines
2(N-1)/N (S/g)/B_x, and an all-gather inside (g-1)/g S/B_i; rings at each level.
(Cho et al., BlueConnect: decomposing all-reduce for deep learning on heterogeneous network
hierarchy, MLSys 2019, section 3, with two levels.)

Where the numbers differ, each machine reduces on one rank, its leader, the leaders exchange
whole buffers, and broadcast inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from simulator.plan.plan import Flow, Plan, PlanBuilder
from simulator.strategies.base import Request, Unsuitable
from simulator.strategies.embedding import rings_by_host, subset
from simulator.strategies.rings import add_rings
from simulator.strategies.search.rings import FoundRing, find_rings, round_Bps
from simulator.workload.collective import Collective

__all__ = ["HIERARCHICAL", "PHASES", "Hierarchical"]

# What happens inside, between, and inside again; "" nothing, scatter and gather at the root's machine alone.
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


@dataclass(slots=True)
class _Levels:
    """The machines of a request while its plan is written."""

    builder: PlanBuilder
    request: Request
    hosts: dict[int, list[int]]
    inner: dict[int, list[FoundRing]]
    leaders: dict[int, int] = field(default_factory=dict)

    def inside(self, what: str, after: Sequence[int]) -> list[int]:
        """Add the collective *what* of the whole buffer in each machine; return the last tasks."""
        if what == "":
            return list(after)
        ends: list[int] = []
        for host, ranks in self.hosts.items():
            if len(ranks) == 1:
                continue
            if what in ("scatter", "gather"):
                if self.request.root in ranks:
                    ends.append(self._direct(what, host, ranks, after))
                continue
            part = subset(self.request, ranks, collective=_named(what), root=self.leaders[host])
            ends += add_rings(
                self.builder,
                part,
                self.inner[host],
                size_bytes=self.request.size_bytes,
                stream=f"node{host}.ring",
                after=after,
            )
        return ends or list(after)

    def _direct(self, what: str, host: int, ranks: list[int], after: Sequence[int]) -> int:
        """The root sends each rank beside it its share, or receives it."""
        nodes, root = self.request.ranks, self.request.root
        ends = [(root, r) if what == "scatter" else (r, root) for r in ranks if r != root]
        share = self.request.size_bytes / len(ranks)
        flows = [Flow(self.request.router.route(nodes[a], nodes[b]), share) for a, b in ends]
        return self.builder.transfer(what, flows, stream=f"node{host}.{what}", after=after)

    def between(self, what: Collective, groups: Sequence[list[int]], after: Sequence[int]) -> list[int]:
        """Add the collective *what*, for each of *groups* (a rank of each machine) of an equal share."""
        home = list(self.hosts).index(self._host_of(self.request.root))
        parts = [subset(self.request, group, collective=what, root=group[home]) for group in groups]
        found = [find_rings(part, both_directions=False)[0] for part in parts]
        rates = round_Bps(self.request, [ring.routes for ring in found])  # all groups at once
        ends: list[int] = []
        for i, (part, ring, rate) in enumerate(zip(parts, found, rates, strict=True)):
            ends += add_rings(
                self.builder,
                part,
                [replace(ring, bandwidth_Bps=rate)],
                size_bytes=self.request.size_bytes / len(groups),
                stream=f"shard{i}.ring",
                after=after,
            )
        return ends

    def _host_of(self, rank: int) -> int:
        return self.request.machine.nodes[self.request.ranks[rank]].host


def _named(what: str) -> Collective:
    if what == "reduce-scatter" or what == "all-gather" or what == "reduce" or what == "broadcast":
        return what
    raise ValueError(what)


@dataclass(frozen=True, slots=True)
class Hierarchical:
    """Reduce inside each machine, exchange between machines, spread inside."""

    name: str = "hierarchical"
    summary: str = "reduce-scatter inside each node, exchange between nodes, all-gather inside"

    def plan(self, request: Request) -> Plan:
        """Return the plan; :class:`Unsuitable` on one machine, or for collectives that have no such form."""
        builder = PlanBuilder()
        if request.n_ranks < 2:
            return builder.build()
        hosts = request.by_host()
        if len(hosts) < 2:
            raise Unsuitable("it needs several nodes, and all ranks are on one")
        sizes = {len(ranks) for ranks in hosts.values()}
        table = PHASES if len(sizes) == 1 else _BY_LEADERS
        if request.collective not in table:
            why = "" if request.collective not in PHASES else " where nodes have different numbers of ranks"
            raise Unsuitable(f"it has no form for {request.collective}{why}; sharded or ring do it")
        first, middle, last = table[request.collective]
        levels = _Levels(builder, request, hosts, rings_by_host(request))
        levels.leaders = {h: request.root if request.root in ranks else ranks[0] for h, ranks in hosts.items()}
        if table is PHASES:
            groups = [list(group) for group in zip(*hosts.values(), strict=True)]
        else:
            groups = [list(levels.leaders.values())]
            builder.notes.append("nodes have different numbers of ranks: one rank of each exchanges for the others")
        ends = levels.inside(first, ())
        ends = levels.between(middle, groups, ends)
        levels.inside(last, ends)
        builder.facts["node_count"] = len(hosts)
        return builder.build()


HIERARCHICAL = Hierarchical()
