"""Parameter servers: ``parameter-server``, ``-N``, ``-sharded`` and ``-colocated``.

The workers are the nodes.  As in Dive into Deep Learning, section 13.7 (multi-machine training), a node sums its GPUs'
gradients, moves the sum to its CPU and pushes it to the servers, which add; it then pulls the total and distributes it
to its GPUs.

With m nodes, S bytes and bandwidth B at each NIC, n servers on separate machines need 2(m/n)S/B for push and pull, but
at least 2S/B, the limit of the workers' own links.  A server on a worker's CPU serves that worker without the network:
one server needs 2(m-1)S/B, one on each node 2((m-1)/m)S/B.  Inside a node, GPUs reduce in the fastest rings that
:mod:`simulator.collectives.search.rings` finds, over NVLink if available.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from simulator.collectives.algorithms.direct import push_pull
from simulator.collectives.embedding import rings_by_host, subset
from simulator.collectives.lower import lower
from simulator.collectives.request import MAX_RANKS, Request, Unsuitable, refuse_beyond
from simulator.collectives.rings import add_rings
from simulator.collectives.search.rings import FoundRing
from simulator.errors import nearest
from simulator.network.machine import Machine
from simulator.network.routing import Router
from simulator.plan.flow import FlowData, block
from simulator.plan.plan import Flow, Plan, PlanBuilder
from simulator.records import dataclass, replace
from simulator.spelling import mention
from simulator.workload import Collective

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
    """Return the node of each of *count* servers, always a CPU; by default one at each place.

    *places* are names of CPUs, ``own`` (the first CPU of each machine without GPUs) or ``workers`` (*cpus*, those of
    working nodes); by default ``own`` if there are such machines.  Raises Unsuitable for too few, too many or unknown
    places.
    """
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
        raise Unsuitable(
            f"{stands} somewhere, and {mention('servers')} names {len(found)} places; parameter-server-sharded has all"
        )
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
        refuse_beyond(request, MAX_RANKS["one"])
        cpus = {h: worker_cpu(request.router, request.ranks[ranks[0]]) for h, ranks in request.by_host().items()}
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
        ends = [(self.request.ranks[rank], cpu) for rank in self.request.by_host()[host]]
        return self._shards(host, "to the CPU", ends, after)

    def spread(self, host: int, cpu: int, after: Sequence[int]) -> None:
        """Move one shard of the total from the CPU to each GPU, and all-gather the shards."""
        ends = [(cpu, self.request.ranks[rank]) for rank in self.request.by_host()[host]]
        self._inside(host, "all-gather", "local all-gather", [self._shards(host, "to the GPUs", ends, after)])

    def _shards(self, host: int, label: str, ends: list[tuple[int, int]], after: Sequence[int]) -> int:
        """Add the moves of one shard between each of *ends*; return the task's number."""
        n, route = len(ends), self.request.router.route
        flows = [Flow(route(src, dst), self.request.size_bytes / n) for src, dst in ends]

        def carries(_: int) -> list[FlowData]:
            return [FlowData(block(i, n)) for i in range(n)]

        return self.builder.transfer(label, flows, stream=f"node{host}", after=after, carries=carries)

    def _inside(self, host: int, what: Collective, label: str, after: Sequence[int]) -> list[int]:
        """Add the collective *what* of the whole buffer inside the node, along its rings; return the last tasks."""
        ranks, own = self.request.by_host()[host], PlanBuilder()
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
