"""Gather on one device, add there, send the result back: ``gpu0`` (``gpuN``) and ``cpu``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulator.collectives.algorithms import star as schedules
from simulator.collectives.lower import lower
from simulator.collectives.request import MAX_RANKS, Request, Unsuitable, refuse_beyond
from simulator.collectives.schedule import Schedule
from simulator.plan.plan import Plan, PlanBuilder

_STARS: dict[str, Callable[[int, int, int], Schedule]] = {  # by collective: of n ranks, around a centre, for a root
    "all-reduce": lambda n, centre, _root: schedules.star_all_reduce(n, centre),
    "reduce-scatter": lambda n, centre, _root: schedules.star_reduce_scatter(n, centre),
    "all-gather": lambda n, centre, _root: schedules.star_all_gather(n, centre),
    "broadcast": schedules.star_broadcast,
    "reduce": schedules.star_reduce,
}


def _plan(request: Request, find: Callable[[Request], int], runs_as: str, *, helps: bool = False) -> Plan:
    """Return the plan around the node that *find* returns, a rank or one that only *helps*.

    Raises Unsuitable for all-to-all and send-recv, and beyond 16,384 ranks.
    """
    builder = PlanBuilder()
    if request.n_ranks < 2:
        return builder.build()
    refuse_beyond(request, MAX_RANKS["one"])
    if request.collective not in _STARS:
        raise Unsuitable(f"gathering on one device cannot do {request.collective}; sharded and ring can")
    centre = find(request)
    nodes = request.ranks if not helps else (*request.ranks, centre)
    at = request.n_ranks if helps else nodes.index(centre)
    schedule = _STARS[request.collective](request.n_ranks, at, request.root)
    lower(builder, request, schedule, size_bytes=request.size_bytes, nodes=nodes)
    builder.facts["runs_as"] = runs_as
    if helps:
        builder.facts["centre"] = request.machine.nodes[centre].name
    return builder.build()


@dataclass(frozen=True, slots=True)
class GatherOnGpu:
    """All ranks send to one GPU, which adds and sends the sum back.

    For broadcast and reduce that GPU is the root.
    """

    name: str
    gpu: int
    summary: str = "gather on one GPU, add there, send back (gpuN: on GPU N)"

    def plan(self, request: Request) -> Plan:
        """Return the plan; raises Unsuitable as :func:`_plan`, and if the GPU does not take part."""
        runs_as = "torch.nn.DataParallel, tf.distribute.ReductionToOneDevice"
        return _plan(request, self._centre, runs_as)

    def _centre(self, request: Request) -> int:
        if request.collective in ("broadcast", "reduce"):
            return request.ranks[request.root]
        gpus = request.machine.gpus
        if self.gpu >= len(gpus):
            raise Unsuitable(f"there is no GPU {self.gpu}; it has GPUs 0 to {len(gpus) - 1}")
        if gpus[self.gpu] not in request.ranks:
            if self.name == "gpu0":  # the default: the first GPU that takes part
                return request.ranks[0]
            raise Unsuitable(f"GPU {self.gpu} takes no part")
        return gpus[self.gpu]


def gather_on_gpu(name: str) -> GatherOnGpu:
    """Return the strategy called ``gpuN``."""
    return GatherOnGpu(name, int(name.removeprefix("gpu")))


@dataclass(frozen=True, slots=True)
class GatherOnCpu:
    """All ranks send to the CPU nearest to rank 0, which adds in its memory and sends the sum back."""

    name: str = "cpu"
    summary: str = "gather on the CPU, add there, send back"

    def plan(self, request: Request) -> Plan:
        """Return the plan; raises Unsuitable as :func:`_plan`, and without a CPU."""
        return _plan(request, self._centre, "MXNet's KVStore local", helps=True)

    def _centre(self, request: Request) -> int:
        cpu = request.router.nearest_cpu(request.ranks[0])
        if cpu is None:
            raise Unsuitable("no CPU is linked to its GPUs")
        return cpu


GATHER_ON_CPU = GatherOnCpu()
