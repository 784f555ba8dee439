"""Parameter servers: ``parameter-server``, ``-N``, ``-sharded`` and ``-colocated``.

The workers are the nodes.  The steps are those of Dive into Deep Learning, section 13.7
(multi-machine training): aggregate the GPUs' gradients inside the
node, move them to its CPU, push to the servers, which add, pull, and spread over the GPUs.

With m nodes, S bytes and B at each NIC, n servers on machines of their own need 2(m/n)S/B for push and pull (2S/B at
least: the workers' own links).  A server on a worker's CPU serves that worker without the network: one needs
2(m-1)S/B, one on each node 2((m-1)/m)S/B.  Inside a node GPUs add up in rings over the links that
:mod:`simulator.collectives.search.rings` finds fastest: NVLink where there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from simulator.collectives.algorithms.star import push_pull
from simulator.collectives.embedding import rings_by_host, subset
from simulator.collectives.lower import lower
from simulator.collectives.request import MAX_RANKS, Request, Strategy, Unsuitable, refuse_beyond
from simulator.collectives.rings import add_rings
from simulator.collectives.search.rings import FoundRing
from simulator.collectives.servers import WORKERS, place_servers, worker_cpu
from simulator.plan.carried import Carried, Carries, block
from simulator.plan.plan import Flow, Plan, PlanBuilder
from simulator.workload.collective import Collective

__all__ = ["ParameterServer", "at_places", "parameter_server"]


@dataclass(frozen=True, slots=True)
class ParameterServer:
    """Nodes push their sums to servers and pull the total; ``n_servers`` None: one at each of the ``places``.

    ``places`` are as :func:`simulator.collectives.servers.place_servers` takes them.
    """

    name: str
    n_servers: int | None = 1
    places: tuple[str, ...] = ()
    summary: str = "nodes push to a server and pull (-N: N servers; -sharded: all there are; -colocated: on each node)"

    def plan(self, request: Request) -> Plan:
        """Return the plan; :class:`Unsuitable` for other than all-reduce, or without enough CPUs."""
        if request.collective != "all-reduce":
            raise Unsuitable(f"servers add up and hand back: that is all-reduce, not {request.collective}")
        builder = PlanBuilder()
        if request.n_ranks < 2:
            return builder.build()
        refuse_beyond(request, MAX_RANKS["one"])
        hosts = request.by_host()
        cpus = [worker_cpu(request.router, request.ranks[ranks[0]]) for ranks in hosts.values()]
        servers = place_servers(request.machine, cpus, self.n_servers, self.places)
        rings = rings_by_host(request)
        ready = [
            _collect(builder, request, host, ranks, rings[host], cpu)
            for (host, ranks), cpu in zip(hosts.items(), cpus, strict=True)
        ]
        if len(hosts) > 1 or servers != tuple(cpus):
            nodes = list(dict.fromkeys((*cpus, *servers)))
            schedule = push_pull(len(hosts), [nodes.index(server) for server in servers])
            size = request.size_bytes
            ready = [lower(builder, request, schedule, size_bytes=size, nodes=nodes, stream="servers", after=ready)]
        else:
            builder.notes.append("one node: its GPUs' sum goes to the CPU and back, and no network is crossed")
        for (host, ranks), cpu in zip(hosts.items(), cpus, strict=True):
            _spread(builder, request, host, ranks, rings[host], cpu, ready)
        builder.facts["server_count"] = len(servers)
        return builder.build()


def _collect(
    builder: PlanBuilder, request: Request, host: int, ranks: list[int], rings: Sequence[FoundRing], cpu: int
) -> int:
    """Add up inside the node, a share on each GPU, and move the sum to the CPU."""
    gpus = [request.ranks[r] for r in ranks]
    stream, size = f"node{host}", request.size_bytes
    after = _inside(builder, request, "reduce-scatter", "local aggregation", host, ranks, rings, ())
    flows = [Flow(request.router.route(gpu, cpu), size / len(gpus)) for gpu in gpus]
    return builder.transfer("to the CPU", flows, stream=stream, after=after, carries=_shares(len(gpus)))


def _spread(
    builder: PlanBuilder,
    request: Request,
    host: int,
    ranks: list[int],
    rings: Sequence[FoundRing],
    cpu: int,
    after: Sequence[int],
) -> None:
    """Move the total from the CPU to the GPUs, a share to each, and exchange the shares."""
    gpus = [request.ranks[r] for r in ranks]
    flows = [Flow(request.router.route(cpu, gpu), request.size_bytes / len(gpus)) for gpu in gpus]
    task = builder.transfer("to the GPUs", flows, stream=f"node{host}", after=after, carries=_shares(len(gpus)))
    _inside(builder, request, "all-gather", "local all-gather", host, ranks, rings, [task])


def _shares(n: int) -> Carries:
    """Return an equal share of the buffer for each of *n* flows."""
    return lambda _: [Carried(block(i, n)) for i in range(n)]


def _inside(
    builder: PlanBuilder,
    request: Request,
    what: Collective,
    label: str,
    host: int,
    ranks: list[int],
    rings: Sequence[FoundRing],
    after: Sequence[int],
) -> list[int]:
    """Add *what* of the whole buffer inside the node *host*, along its *rings*; return the last activities."""
    if len(ranks) < 2:
        return list(after)
    own = PlanBuilder()
    add_rings(own, subset(request, ranks, collective=what), rings, size_bytes=request.size_bytes)
    plan = replace(own.build(), tasks=tuple(task._replace(label=label) for task in own.tasks), rings=())
    return builder.inline(plan, f"node{host}.", after)


def parameter_server(name: str) -> ParameterServer:
    """Return the strategy called ``parameter-server``, with ``-N``, ``-sharded`` or ``-colocated``."""
    rest = name.removeprefix("parameter-server").removeprefix("-")
    if rest == "colocated":
        return ParameterServer(name, None, (WORKERS,))
    if rest == "sharded":
        return ParameterServer(name, None)
    return ParameterServer(name, int(rest) if rest else 1)


def at_places(strategy: Strategy, places: tuple[str, ...]) -> Strategy:
    """Return *strategy* with its servers at *places*; those that stand on the workers anyhow stay there."""
    if not isinstance(strategy, ParameterServer) or strategy.places:
        return strategy
    return replace(strategy, places=places)
