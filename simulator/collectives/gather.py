"""Gather on one device, add there, send the result back: ``gpu0`` (``gpuN``) and ``cpu``."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.collectives.algorithms import star as schedules
from simulator.collectives.lower import lower
from simulator.collectives.request import MAX_RANKS, Request, Unsuitable, refuse_beyond
from simulator.collectives.schedule import Schedule
from simulator.plan.plan import Plan, PlanBuilder


def _star(request: Request, centre: int) -> Schedule:
    """Return the star schedule around *centre*, a rank or (if equal to the number of ranks) a helper.

    Raises Unsuitable for all-to-all and send-recv.
    """
    n, root = request.n_ranks, request.root
    match request.collective:
        case "all-reduce":
            return schedules.star_all_reduce(n, centre)
        case "reduce-scatter":
            return schedules.star_reduce_scatter(n, centre)
        case "all-gather":
            return schedules.star_all_gather(n, centre)
        case "broadcast":
            return schedules.star_broadcast(n, centre, root)
        case "reduce":
            return schedules.star_reduce(n, centre, root)
    raise Unsuitable(f"gathering on one device cannot do {request.collective}; sharded and ring can")


@dataclass(frozen=True, slots=True)
class GatherOnGpu:
    """All ranks send to one GPU, which adds and sends the sum back.

    For broadcast and reduce that GPU is the root.
    """

    name: str
    gpu: int
    summary: str = "gather on one GPU, add there, send back (gpuN: on GPU N)"

    def plan(self, request: Request) -> Plan:
        """Return the plan.

        Raises Unsuitable if the GPU does not take part, for all-to-all and send-recv, and beyond 16,384 ranks.
        """
        builder = PlanBuilder()
        if request.n_ranks < 2:
            return builder.build()
        refuse_beyond(request, MAX_RANKS["one"])
        centre = request.root if request.collective in ("broadcast", "reduce") else self._rank(request)
        lower(builder, request, _star(request, centre), size_bytes=request.size_bytes)
        builder.facts["runs_as"] = "torch.nn.DataParallel, tf.distribute.ReductionToOneDevice"
        return builder.build()

    def _rank(self, request: Request) -> int:
        gpus = request.machine.gpus
        if self.gpu >= len(gpus):
            raise Unsuitable(f"there is no GPU {self.gpu}; it has GPUs 0 to {len(gpus) - 1}")
        if gpus[self.gpu] not in request.ranks:
            if self.name == "gpu0":  # the default: the first GPU that takes part
                return 0
            raise Unsuitable(f"GPU {self.gpu} takes no part")
        return request.ranks.index(gpus[self.gpu])


def gather_on_gpu(name: str) -> GatherOnGpu:
    """Return the strategy called ``gpuN``."""
    return GatherOnGpu(name, int(name.removeprefix("gpu")))


@dataclass(frozen=True, slots=True)
class GatherOnCpu:
    """All ranks send to the CPU nearest to rank 0, which adds in its memory and sends the sum back."""

    name: str = "cpu"
    summary: str = "gather on the CPU, add there, send back"

    def plan(self, request: Request) -> Plan:
        """Return the plan.  Raises Unsuitable without a CPU, for all-to-all and send-recv, and beyond 16,384 ranks."""
        builder = PlanBuilder()
        if request.n_ranks < 2:
            return builder.build()
        refuse_beyond(request, MAX_RANKS["one"])
        cpu = request.router.nearest_cpu(request.ranks[0])
        if cpu is None:
            raise Unsuitable("no CPU is linked to its GPUs")
        nodes = (*request.ranks, cpu)
        lower(builder, request, _star(request, request.n_ranks), size_bytes=request.size_bytes, nodes=nodes)
        builder.facts["runs_as"] = "MXNet's KVStore local"
        builder.facts["centre"] = request.machine.nodes[cpu].name
        return builder.build()


GATHER_ON_CPU = GatherOnCpu()
