"""Gather on one device, add there, send the result back: ``gpu0`` (``gpuN``) and ``cpu``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from simulator.collectives.algorithms import Schedule
from simulator.collectives.algorithms import star as schedules
from simulator.collectives.lower import lower
from simulator.collectives.request import MAX_RANKS, Planned, Request, Unsuitable
from simulator.plan.plan import PlanBuilder

_STARS: dict[str, Callable[[int, int, int], Schedule]] = {  # by collective: of n ranks, around a centre, for a root
    "all-reduce": lambda n, centre, _root: schedules.star_all_reduce(n, centre),
    "reduce-scatter": lambda n, centre, _root: schedules.star_reduce_scatter(n, centre),
    "all-gather": lambda n, centre, _root: schedules.star_all_gather(n, centre),
    "broadcast": schedules.star_broadcast,
    "reduce": schedules.star_reduce,
}
_LIMITS = MAX_RANKS["one"], _STARS, "gathering on one device cannot do {}; sharded and ring can"


def _write(
    builder: PlanBuilder, request: Request, *, find: Callable[[Request], int], runs_as: str, helps: bool = False
) -> None:
    """Add the star around the node that *find* returns, a rank or one that only *helps*."""
    centre = find(request)
    nodes = (*request.ranks, centre) if helps else request.ranks
    at = request.n_ranks if helps else nodes.index(centre)
    schedule = _STARS[request.collective](request.n_ranks, at, request.root)
    lower(builder, request, schedule, size_bytes=request.size_bytes, nodes=nodes)
    builder.facts["runs_as"] = runs_as
    if helps:
        builder.facts["centre"] = request.machine.nodes[centre].name


def gather_on_gpu(name: str) -> Planned:
    """Return the strategy called ``gpuN``: all ranks send to GPU N, of a broadcast or reduce to the root.

    It raises Unsuitable if GPU N does not take part; for ``gpu0``, the default, the first that does stands in.
    """
    number = int(name.removeprefix("gpu"))

    def find(request: Request) -> int:
        if request.collective in ("broadcast", "reduce"):
            return request.ranks[request.root]
        gpus = request.machine.gpus
        if number >= len(gpus):
            raise Unsuitable(f"there is no GPU {number}; it has GPUs 0 to {len(gpus) - 1}")
        if gpus[number] in request.ranks:
            return gpus[number]
        if name == "gpu0":
            return request.ranks[0]
        raise Unsuitable(f"GPU {number} takes no part")

    write = partial(_write, find=find, runs_as="torch.nn.DataParallel, tf.distribute.ReductionToOneDevice")
    return Planned(name, "gather on one GPU, add there, send back (gpuN: on GPU N)", write, *_LIMITS)


def _nearest_cpu(request: Request) -> int:
    cpu = request.router.nearest_cpu(request.ranks[0])
    if cpu is None:
        raise Unsuitable("no CPU is linked to its GPUs")
    return cpu


GATHER_ON_CPU = Planned(
    "cpu",
    "gather on the CPU, add there, send back",
    partial(_write, find=_nearest_cpu, runs_as="MXNet's KVStore local", helps=True),
    *_LIMITS,
)
