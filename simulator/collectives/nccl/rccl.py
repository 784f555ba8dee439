"""What RCCL, AMD's version of NCCL, does otherwise.

RCCL does not search where it knows the machine: it takes orders from tables of models (ROCm/rccl ``src/graph/
rome_models.cc``), on eight MI300X seven rings that share no link.  A machine with the same links has the same orders,
whatever its model.

Among eight GPUs that are all joined directly, small buffers need no ring: each GPU sends each other one its part, and
the sums come back the same way.  Until 2.27 RCCL runs this as a program of MSCCL (``tools/msccl-algorithms``:
allreduce-allpairs-8n-*, allgather-8n-*), later as its own kernels (``rccl_arch_thresholds``: DDA).
"""

from __future__ import annotations

from itertools import permutations

from simulator.collectives.nccl.paths import SeenMachine, rank_of
from simulator.collectives.nccl.search import ChannelSolution
from simulator.collectives.request import Request
from simulator.collectives.search.cycles import separate_rings
from simulator.questions.collective import Protocol
from simulator.questions.nccl import Version
from simulator.records import replace
from simulator.topology.parts import GpuPart, Part

_DIRECT_RANKS = 8  # the programs of MSCCL for one machine, and the kernels of later versions, are for eight ranks alone
_OWN_KERNELS: Version = (2, 28)  # "Removed MSCCL and MSCCL++ collective integration" (CHANGELOG.md, 2.28.3)
_GATHERED: Version = (2, 24)  # "Added MSCCL support for AllGather" (CHANGELOG.md, 2.24.3)
_PROGRAM_ELEMENTS = 256  # a program divides a buffer into so many chunks of whole elements (nchunksperloop)
_LARGEST_LL = (1 << 20) - 1  # of allreduce-allpairs-8n-ll-64tb; allreduce-allpairs-8n-simple goes on
_LARGEST_PROGRAM = {"all-reduce": 20 << 20, "all-gather": 16 << 20}
_LARGEST_KERNEL = {"CDNA3": 8 << 20, "CDNA4": 128 << 20}  # ddaVmmMax of gfx942 and gfx950, both collectives
_ELEMENT_BYTES = 4  # as nccl-tests' default; of smaller ones a program takes smaller buffers too


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


def direct_protocol(request: Request, version: Version) -> Protocol | None:
    """Return the protocol with which all GPUs of *request* exchange directly; None if RCCL takes a ring or a tree."""
    largest = _LARGEST_PROGRAM.get(request.collective)
    parts = (node.part for node in request.group.unlike())
    chips = {part.architecture if isinstance(part, GpuPart) and is_amd(part) else None for part in parts}
    if largest is None or len(chips) != 1 or chips.isdisjoint(_LARGEST_KERNEL):
        return None
    if request.n_ranks != _DIRECT_RANKS or len(request.by_host()) > 1 or request.gpus_per_process > 1:
        return None
    size = request.size_bytes
    if version >= _OWN_KERNELS:
        largest = _LARGEST_KERNEL[str(chips.pop())]
    elif size % (_PROGRAM_ELEMENTS * _ELEMENT_BYTES) or (request.collective == "all-gather" and version < _GATHERED):
        return None
    if not 0 < size <= largest or not all(request.router.direct(a, b) for a, b in permutations(request.ranks, 2)):
        return None
    return "LL" if size <= _LARGEST_LL else "Simple"
