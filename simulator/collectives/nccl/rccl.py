"""What RCCL, AMD's version of NCCL, does otherwise.

RCCL does not search where it knows the machine: it takes orders from tables of models (ROCm/rccl ``src/graph/
rome_models.cc``), on eight MI300X seven rings that share no link.  A machine with the same links has the same orders,
whatever its model.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

from simulator.collectives.nccl.paths import SeenMachine, rank_of
from simulator.collectives.nccl.search import ChannelSolution
from simulator.collectives.search.complete import separate_rings
from simulator.topology.parts import GpuPart, Part


def is_amd(part: Part | None) -> bool:
    """Return whether *part* is a GPU by AMD, on which RCCL runs."""
    return isinstance(part, GpuPart) and part.vendor == "amd"


def in_orders_of_rccl(seen: SeenMachine, found: ChannelSolution) -> ChannelSolution:
    """Return *found*, or rings that share no link, if more, where equally fast links join all GPUs directly."""
    paths = [seen.paths.get(pair) for pair in permutations(seen.gpus, 2)]
    alike = {(path.kind, path.bandwidth) if path is not None else (rank_of["sys"], 0) for path in paths}
    if [kind for kind, _ in alike] != [rank_of["nvl"]]:
        return found
    orders = tuple(tuple(seen.gpus[i] for i in order) for order in separate_rings(len(seen.gpus)))
    if len(orders) <= len(set(found.orders)):
        return found
    each = max(1, found.n_channels // len(set(found.orders)))
    return replace(found, orders=orders, n_channels=each * len(orders))
