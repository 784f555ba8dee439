"""Parameter servers on the CPUs of nodes: ``parameter-server``, ``-N`` and ``-colocated``.

The workers are the nodes.  The steps are those of Dive into Deep Learning, section 13.7
(multi-machine training): aggregate the GPUs' gradients inside the
node, move them to its CPU, push to the servers, which add, pull, and spread over the GPUs.

The server j stands on the CPU of node j and serves the worker there without the network.  So
with m nodes, S bytes and B at each NIC, one server needs 2(m-1)S/B for push and pull (2mS/B
were it a machine of its own), n of them about 2(m/n)S/B, one on each node 2((m-1)/m)S/B.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from simulator.collectives.algorithms.direct import direct_all_gather, direct_reduce_scatter
from simulator.collectives.algorithms.star import push_pull
from simulator.collectives.lower import lower
from simulator.collectives.request import Request, Unsuitable
from simulator.collectives.schedule import Schedule
from simulator.plan.plan import Flow, Plan, PlanBuilder

__all__ = ["ParameterServer", "parameter_server"]


@dataclass(frozen=True, slots=True)
class ParameterServer:
    """Nodes push their sums to servers and pull the total; ``n_servers`` None: one on each node."""

    name: str
    n_servers: int | None = 1
    summary: str = "nodes push to a server and pull (-N: N servers; -colocated: one on each node)"

    def plan(self, request: Request) -> Plan:
        """Return the plan; :class:`Unsuitable` for other than all-reduce, or without enough CPUs."""
        if request.collective != "all-reduce":
            raise Unsuitable(f"servers add up and hand back: that is all-reduce, not {request.collective}")
        builder = PlanBuilder()
        if request.n_ranks < 2:
            return builder.build()
        hosts = list(request.by_host().values())
        n_servers = len(hosts) if self.n_servers is None else self.n_servers
        if n_servers < 1:
            raise Unsuitable("there must be a server; name 1 or more")
        if n_servers > len(hosts):
            nodes = "one node takes part" if len(hosts) == 1 else f"{len(hosts)} nodes take part"
            raise Unsuitable(f"{n_servers} servers need a node each, and {nodes}")
        cpus = [_cpu(request, ranks) for ranks in hosts]
        nodes_and_cpus = list(enumerate(zip(hosts, cpus, strict=True)))
        ready = [_collect(builder, request, i, ranks, cpu) for i, (ranks, cpu) in nodes_and_cpus]
        if len(hosts) > 1:
            schedule = push_pull(len(hosts), range(n_servers))
            size = request.size_bytes
            ready = [lower(builder, request, schedule, size_bytes=size, nodes=cpus, stream="servers", after=ready)]
        else:
            builder.notes.append("one node: its GPUs' sum goes to the CPU and back, and no network is crossed")
        for i, (ranks, cpu) in nodes_and_cpus:
            _spread(builder, request, i, ranks, cpu, ready)
        builder.facts["server_count"] = n_servers
        return builder.build()


def _cpu(request: Request, ranks: Sequence[int]) -> int:
    cpu = request.router.nearest_cpu(request.ranks[ranks[0]])
    if cpu is None:
        raise Unsuitable(f"no CPU is linked to {request.machine.nodes[request.ranks[ranks[0]]].name}")
    return cpu


def _collect(builder: PlanBuilder, request: Request, node: int, ranks: Sequence[int], cpu: int) -> int:
    """Add up inside the node, a share on each GPU, and move the sum to the CPU."""
    gpus = [request.ranks[r] for r in ranks]
    stream, size = f"node{node}", request.size_bytes
    after: list[int] = []
    if len(gpus) > 1:
        inside = _labelled(direct_reduce_scatter(len(gpus)), "local aggregation")
        after = [lower(builder, request, inside, size_bytes=size, nodes=gpus, stream=stream)]
    flows = [Flow(request.router.route(gpu, cpu), size / len(gpus)) for gpu in gpus]
    return builder.transfer("to the CPU", flows, stream=stream, after=after)


def _spread(
    builder: PlanBuilder, request: Request, node: int, ranks: Sequence[int], cpu: int, after: Sequence[int]
) -> None:
    """Move the total from the CPU to the GPUs, a share to each, and exchange the shares."""
    gpus = [request.ranks[r] for r in ranks]
    stream, size = f"node{node}", request.size_bytes
    flows = [Flow(request.router.route(cpu, gpu), size / len(gpus)) for gpu in gpus]
    task = builder.transfer("to the GPUs", flows, stream=stream, after=after)
    if len(gpus) > 1:
        inside = _labelled(direct_all_gather(len(gpus)), "local all-gather")
        lower(builder, request, inside, size_bytes=size, nodes=gpus, stream=stream, after=[task])


def _labelled(schedule: Schedule, label: str) -> Schedule:
    return replace(schedule, rounds=tuple(replace(step, label=label) for step in schedule.rounds))


def parameter_server(name: str) -> ParameterServer:
    """Return the strategy called ``parameter-server``, ``parameter-server-N`` or ``parameter-server-colocated``."""
    rest = name.removeprefix("parameter-server").removeprefix("-")
    if rest == "colocated":
        return ParameterServer(name, None)
    return ParameterServer(name, int(rest) if rest else 1)
