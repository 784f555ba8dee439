"""The thread blocks and threads with which NCCL launches a kernel, as in NVIDIA/nccl@5067397c ``src/enqueue.cc``."""

from __future__ import annotations

from simulator.collectives.nccl import tables as t
from simulator.collectives.nccl.tuning import CommGraph, NcclChoice
from simulator.records import dataclass


@dataclass(frozen=True, slots=True)
class KernelResources:
    """The GPU resources of a kernel: thread blocks (one per channel) and threads per block.

    ``n_filled`` is the number of channels that the buffer fills, not rounded.
    """

    n_channels: int
    n_threads: int
    n_filled: float


def channels_used(graph: CommGraph, choice: NcclChoice, size_bytes: float) -> KernelResources:
    """Return the number of channels and threads that NCCL launches for *choice* at a size.

    Channels are removed while each thread would have fewer bytes than a threshold; then threads are halved.  NVLS uses
    a fixed number of channels.
    """
    algorithm, protocol = choice.algorithm, choice.protocol
    if algorithm in ("nvls", "nvls_tree"):
        fixed = 16 if graph.compute_capability_min < 100 else 24 if graph.n_nodes == 1 else 32
        return KernelResources(fixed, t.NVLS_THREADS, fixed)
    channels, threads = graph.comm_channels, t.THREADS[protocol]
    threshold = t.BYTES_PER_THREAD[protocol]
    if algorithm == "ring" and protocol == "LL":
        threshold *= graph.n_ranks
    if algorithm == "ring" and protocol == "Simple" and graph.n_channels * graph.bw_intra_GBps <= t.PCIE3_X16:
        threads = t.FEW_THREADS
    filled = min(float(channels), max(1.0, size_bytes / (threads * threshold)))
    while channels > 1 and size_bytes < channels * threads * threshold:
        channels -= 1
    while threads % 128 == 0 and size_bytes < channels * threads * threshold:
        threads //= 2
    return KernelResources(channels, threads, filled)
