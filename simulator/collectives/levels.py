"""Collectives in two levels: ``hierarchical``, and parameter servers (docs/decisions/collectives.md)."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, cast

from simulator.collectives.communicator import MAX_RANKS, Equal, Request, Unsuitable
from simulator.collectives.lower import best_chunk_count, lower
from simulator.collectives.rings import add_rings, first_lap, rings_by_host, subset
from simulator.collectives.schedules import push_pull
from simulator.collectives.search.rings import FoundRing, find_rings, round_rates
from simulator.errors import mention, nearest
from simulator.network.machine import Machine
from simulator.network.routing import Router
from simulator.plan.flow import FlowData, PairGroup, Region, block, joined_regions
from simulator.plan.plan import Activity, Flow, Plan, PlanBuilder, in_step
from simulator.records import dataclass, own_data, replace
from simulator.workload import Collective

_FORMS: Mapping[str, Mapping[str, Any]] = own_data("simulator.collectives", "forms.json")
# The collectives inside, between, and inside machines again; "" is none.  Scatter and gather: root's machine only.
PHASES, _BY_LEADERS = _FORMS["hierarchical"], _FORMS["by leaders"]


class _Levels:
    """The machines; ``groups`` has, for each shard, one rank of each machine: the *leaders* alone, or all."""

    def __init__(self, builder: PlanBuilder, request: Request, *, leaders: bool) -> None:
        self.builder, self.request, self.hosts = builder, request, request.group.by_host()
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


def write_levels(builder: PlanBuilder, request: Request) -> None:
    """Add both levels; raises Unsuitable on a single machine, and for collectives without a hierarchical form."""
    hosts = request.group.by_host()
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


OWN, WORKERS = "own", "workers"


def worker_cpu(router: Router, gpu: int) -> int:
    """Return the CPU through which a node with participant *gpu* pushes; raises Unsuitable if none is linked to it."""
    cpu = router.nearest_cpu(gpu)
    if cpu is None:
        raise Unsuitable(f"no CPU is linked to {router.machine.nodes[gpu].name}")
    return cpu


def place_servers(
    machine: Machine, cpus: Sequence[int], count: int | None, places: tuple[str, ...] = ()
) -> tuple[int, ...]:
    """Return the CPU of each of *count* servers, at *places* by name, ``own`` or ``workers``; or raise Unsuitable."""
    working = {machine.nodes[gpu].host for gpu in machine.gpus}
    idle = [node for node in machine.nodes if node.kind == "cpu" and node.host not in working]
    own = [next(cpus_of).index for _, cpus_of in groupby(idle, key=lambda node: node.host)]
    if places == (OWN,) and not own:
        raise Unsuitable(f"every node has GPUs, so no server has a machine of its own; {mention('servers', 'workers')}")
    if not places:
        places = (OWN,) if own else (WORKERS,)
    if places == (OWN,):
        found, what = own, "machine without GPUs"
    elif places == (WORKERS,):
        found, what = list(cpus), "node"
    else:
        found, what = [_named(machine, name) for name in places], "place"
    if count is None:
        return tuple(found)
    if count < 1:
        raise Unsuitable("there must be a server; name 1 or more")
    if count > len(found):
        one, n = len(found) == 1, len(found)
        there = "there is one" if one else f"there are {n}"
        if what == "node":
            there = "one node takes part" if one else f"{n} nodes take part"
        raise Unsuitable(f"{count} servers need a {what} each, and {there}")
    if what == "place" and count < len(found):
        stands = "one server stands" if count == 1 else f"{count} servers stand"
        named = f"{mention('servers')} names {len(found)} places"
        raise Unsuitable(f"{stands} somewhere, and {named}; parameter-server-sharded has all")
    return tuple(found[:count])


def _named(machine: Machine, name: str) -> int:
    node = machine.find(name)
    if node is None or node.kind != "cpu":
        known = [node.name for node in machine.nodes if node.kind == "cpu"]
        raise Unsuitable(f"no CPU is called '{name}'; {nearest(name, known) or 'there is none'}")
    return node.index


@dataclass(frozen=True, slots=True)
class ParameterServer:
    """Nodes push their sums to servers (None: one at each of ``places``, see :func:`place_servers`), and pull."""

    name: str
    n_servers: int | None = 1
    places: tuple[str, ...] = ()
    summary: str = "nodes push to a server and pull (-N: N servers; -sharded: all there are; -colocated: on each node)"

    def plan(self, request: Request) -> Plan:
        """Return the plan; raises Unsuitable unless it is an all-reduce with enough CPUs of at most 16,384 ranks."""
        if request.collective != "all-reduce":
            raise Unsuitable(f"servers add up and hand back: that is all-reduce, not {request.collective}")
        builder = PlanBuilder()
        if request.n_ranks < 2:
            return builder.build()
        request.refuse_beyond(MAX_RANKS["one"])
        cpus = {h: worker_cpu(request.router, request.ranks[ranks[0]]) for h, ranks in request.group.by_host().items()}
        servers = place_servers(request.machine, list(cpus.values()), self.n_servers, self.places)
        workers = _Workers(builder, request, rings_by_host(request))
        ready = [workers.collect(host, cpu) for host, cpu in cpus.items()]
        if len(cpus) > 1 or servers != tuple(cpus.values()):
            nodes = list(dict.fromkeys((*cpus.values(), *servers)))
            schedule = push_pull(len(cpus), [nodes.index(server) for server in servers])
            size = request.size_bytes
            ready = [lower(builder, request, schedule, size_bytes=size, nodes=nodes, stream="servers", after=ready)]
        else:
            builder.notes.append("one node: its GPUs' sum goes to the CPU and back, and no network is crossed")
        for host, cpu in cpus.items():
            workers.spread(host, cpu, ready)
        builder.facts |= {"runs_as": "MXNet's KVStore dist_sync, BytePS", "server_count": len(servers)}
        return builder.build()


@dataclass(frozen=True, slots=True)
class _Workers:
    """The working nodes, by number, each with its rings; a node pushes through a CPU."""

    builder: PlanBuilder
    request: Request
    rings: Mapping[int, Sequence[FoundRing]]

    def collect(self, host: int, cpu: int) -> int:
        """Sum inside the node, one shard per GPU, and move the sum to the CPU; return the last task's number."""
        after = self._inside(host, "reduce-scatter", "local aggregation", ())
        ends = [(self.request.ranks[rank], cpu) for rank in self.request.group.by_host()[host]]
        return self._shards(host, "to the CPU", ends, after)

    def spread(self, host: int, cpu: int, after: Sequence[int]) -> None:
        """Move one shard of the total from the CPU to each GPU, and all-gather the shards."""
        ends = [(cpu, self.request.ranks[rank]) for rank in self.request.group.by_host()[host]]
        self._inside(host, "all-gather", "local all-gather", [self._shards(host, "to the GPUs", ends, after)])

    def _shards(self, host: int, label: str, ends: list[tuple[int, int]], after: Sequence[int]) -> int:
        n, route = len(ends), self.request.router.route
        flows = [Flow(route(src, dst), self.request.size_bytes / n) for src, dst in ends]

        def carries(_: int) -> list[FlowData]:
            return [FlowData(block(i, n)) for i in range(n)]

        return self.builder.transfer(label, flows, stream=f"node{host}", after=after, carries=carries)

    def _inside(self, host: int, what: Collective, label: str, after: Sequence[int]) -> list[int]:
        ranks, own = self.request.group.by_host()[host], PlanBuilder()
        if len(ranks) < 2:
            return list(after)
        part = subset(self.request, ranks, collective=what)
        add_rings(own, part, self.rings[host], size_bytes=self.request.size_bytes)
        plan = replace(own.build(), tasks=tuple(task._replace(label=label) for task in own.tasks), rings=())
        return self.builder.inline(plan, f"node{host}.", after)


def parameter_server(name: str) -> ParameterServer:
    """Return the strategy called ``parameter-server``, ``-N``, ``-sharded`` or ``-colocated``."""
    rest = name.removeprefix("parameter-server").removeprefix("-")
    if rest in ("colocated", "sharded"):
        return ParameterServer(name, None, (WORKERS,) if rest == "colocated" else ())
    return ParameterServer(name, int(rest or 1))


PARAMETER_SERVER = parameter_server("parameter-server")
