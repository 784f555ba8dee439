"""The memory of a GPU that NCCL takes for a communicator, which no framework's allocator counts.

After ``src/init.cc`` (computeBuffSizes), ``src/transport/{p2p,net,nvls,shm}.cc``, ``src/channel.cc`` and
``src/graph/paths.cc`` of NVIDIA/nccl@e11238b3 (2.10.3), 5d3ab08b (2.17.1), b6475625 (2.20.3) and 022c022a (2.30).

* Each connection of a channel to a neighbour has buffers of all three protocols: LL 8 lines x 512 threads x 8 steps x
  16 B, LL128 120 elements x 640 threads x 8 steps x 8 B, Simple 4 MiB (NCCL_BUFFSIZE).  A pair, one to send and one to
  receive, takes 12 MiB between GPUs that reach each other: 2 + 10 in pages of 2 MiB, or 6 + 6 where the receiver reads
  the Simple buffer.  Over a network it takes 20 MiB; there the sender's LL buffer is in host memory.  Where data pass
  host memory (no peer access, or no GPUDirect), all buffers are there.
* A ring connects each rank to the next; a tree also connects the chain of a machine backward, and machines to their
  parents and children in two trees; PAT connects ranks at all distances of a power of two.
* Until 2.20 all algorithms are connected from the start.  "lazy" versions connect one before its first collective.
* NVLS has two buffers for each channel and head: 8 steps of its chunk if "lazy", before that 4 MiB and a page; from
  2.18 (2.20.3) until "lazy" for all channels, not its own alone.
* Sends and receives have connections of their own to ranks of the same machine, over all channels that NVLink between
  them fills.  To others they share 16 chunks a channel for sending, and as many for receiving.  From 2.12 (PXN) until
  "lazy", every communicator takes those for sending.
* With cuMem, each small array of a channel (three, and one of NVLS) takes a page.

RCCL (src/include/device.h of ROCm/rccl@0123763f) runs 256 threads, so its LL buffers have half the lines, and those of
LL128 28 elements a thread: a pair between GPUs takes 2 + 6 MiB.  It has neither cuMem, and so connects rings and trees
from the start in all versions, nor NVLS, nor PAT.

Interpretations: the ranks of a machine take turns at the network, so they hold equal parts of its connections; buffers
that a neighbour near the adapter holds for others (PXN) are counted where they are used.

The memory of a GPU that DeepEP takes to exchange tokens of experts, which no framework's allocator counts.

After csrc/config.hpp (``get_nvl_buffer_size_hint``, ``get_rdma_buffer_size_hint``), ``get_dispatch_config`` and
``get_combine_config`` of deep_ep/buffer.py, and csrc/kernels/configs.cuh of deepseek-ai/DeepEP; Megatron-LM asks for
the larger of both (``get_buffer`` in megatron/core/transformer/moe/fused_a2a.py).

* A channel is two of 20 SMs.  It has a ring of tokens for each GPU of a machine, each with its numbers and room for 128
  experts (indices of 8 B, weights of 4 B) and 128 scales of 4 B.
* Over a network, GPUs in the same place of each machine exchange: two rings a machine and channel, sending and
  receiving.  NVSHMEM, which holds them, takes memory in 512 MiB (``NVSHMEM_CUMEM_GRANULARITY``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable
from contextlib import suppress
from math import ceil

from simulator.collectives.communicator import Communicator, Unsuitable
from simulator.collectives.nccl import tables as t
from simulator.collectives.nccl.graph import fewest_nvlinks, with_peers
from simulator.collectives.nccl.strategy import Nccl, nvls_channels
from simulator.collectives.nccl.tuning import CommGraph
from simulator.questions.collective import ALGORITHMS, SENDING
from simulator.questions.nccl import has
from simulator.topology.parts import GpuPart
from simulator.workload import Collective

_PAGE = 2 * 2**20  # CUDA_IPC_MIN, and the granularity of cuMem
_STEPS = 8
_SIMPLE = 4 * 2**20
_HEAD = 4096  # heads and tails, before the buffers of a connection between GPUs
_SHARED_STEPS = 16
_NET_CHUNK, _NVLINK_CHUNK = 128 * 1024, 512 * 1024  # of sends and receives; over PCIe as over a network


def _pages(n_bytes: float) -> int:
    return ceil(n_bytes / _PAGE) * _PAGE


def _pair(ll: int, ll128: int) -> tuple[int, int]:
    """Return the bytes of a pair of connections with a GPU of the same machine, and over a network."""
    both = ll + ll128 + _SIMPLE
    return _pages(_HEAD) + _pages(_HEAD + both), _pages(ll128 + _SIMPLE) + _pages(both)


PEER_BYTES, NETWORK_BYTES = _pair(8 * 512 * _STEPS * 16, 120 * 640 * _STEPS * 8)
_OF_RCCL = _pair(8 * 256 * _STEPS * 16, 28 * 256 * _STEPS * 8)


def communicator_bytes(
    nccl: Nccl, group: Communicator, carried: Iterable[tuple[Collective, float]], n_peers: int = 0
) -> float:
    """Return the bytes on each GPU of *group*, NVIDIA's or AMD's, for *carried* sizes and sends to *n_peers* ranks."""
    vendors = {node.part.vendor if isinstance(node.part, GpuPart) else "" for node in group.unlike()}
    if group.n_ranks < 2 or vendors not in ({"nvidia"}, {"amd"}):
        return 0.0
    graph, taken = nccl.graph(group), _Taken(nccl, group, is_rccl=vendors == {"amd"})
    if taken.is_rccl:
        used = {"ring", "tree"}
    elif has(nccl.version, "lazy"):
        used = set()
        for collective, size_bytes in carried:
            with suppress(Unsuitable):
                used |= set() if collective in SENDING else {nccl.choice(graph, collective, size_bytes).algorithm}
    else:
        used = {name for name in ALGORITHMS if has(nccl.version, name)}
    return taken.channels_bytes() + taken.collectives_bytes(used) + taken.sending_bytes(n_peers)


class _Taken:
    """What *nccl* takes on a GPU of *group*, by its use."""

    def __init__(self, nccl: Nccl, group: Communicator, *, is_rccl: bool) -> None:
        self.is_rccl = is_rccl
        peer, network = _OF_RCCL if is_rccl else (PEER_BYTES, NETWORK_BYTES)
        self._version, self._group = nccl.version, with_peers(group)
        self._graph: CommGraph = nccl.graph(group)
        hosts = list(group.by_host().values())
        self._several = len(hosts) > 1
        self._on_host = max(map(len, hosts))
        near = next((ranks for ranks in hosts if len(ranks) > 1), None)
        self._peer = peer if near and self._direct(near[0], near[1], "host-staged") else 0
        self._network = network if self._several and self._direct(hosts[0][0], hosts[1][0], "staged") else 0
        self._nvlinks = fewest_nvlinks(group) if self._on_host > 1 else 0
        self._sending = 1 << (self._graph.comm_channels - 1).bit_length()
        self._is_eager = is_rccl or not has(nccl.version, "lazy")
        of_all = self._is_eager and has(nccl.version, "nvls_tree")
        has_nvls = self._graph.nvls_channels and has(nccl.version, "nvls") and nccl.nvls
        self._nvls = (self._graph.comm_channels if of_all else nvls_channels(self._graph)) if has_nvls else 0

    def _direct(self, a: int, b: int, staged: str) -> bool:
        ranks = self._group.ranks
        return not self._group.router.route(ranks[a], ranks[b]).transport.endswith(staged)

    def channels_bytes(self) -> float:
        if self.is_rccl or not has(self._version, "cumem"):
            return 0.0
        return _PAGE * (3 * max(self._sending, self._graph.comm_channels, self._nvls) + self._nvls)

    def collectives_bytes(self, algorithms: Collection[str]) -> float:
        n, hosts, channels = self._group.n_ranks, self._graph.n_nodes, self._graph.comm_channels
        turn = 1 / self._on_host  # of each channel's connections to other machines
        inside = self._peer * ((1 - turn) if self._several else 1)
        edges = 2 * (hosts - 1) / hosts  # of a machine, on average over the nodes of two trees
        found = 0.0
        if "ring" in algorithms:
            found += channels * (inside + turn * self._network)
        if "tree" in algorithms and (n > 2 or "ring" not in algorithms):  # two ranks are joined both ways by a ring
            found += channels * (inside + turn * edges * self._network)
        if "pat" in algorithms:
            found += channels * 2 * (n - 1).bit_length() * (self._network or self._peer)
        if "nvls" in algorithms or "nvls_tree" in algorithms:
            each = _SIMPLE + _PAGE if self._is_eager else _STEPS * t.NVLS_CHUNK
            found += _pages(2 * self._nvls * each * self._graph.nvls_channels)
        if "nvls_tree" in algorithms and self._several:
            found += self._nvls * edges * self._network
        return found

    def sending_bytes(self, n_peers: int) -> float:
        """Bytes of the connections to *n_peers* ranks, those of the same machine first."""
        chunk = _NVLINK_CHUNK if self._nvlinks and not self._several else _NET_CHUNK
        at_once = 2 if n_peers and self._network else int(has(self._version, "pxn") and self._is_eager)
        each = min(self._sending, 1 << (max(2, 2 * self._nvlinks) - 1).bit_length())
        if self._several:
            each = min(each, self._graph.channels_to_a_peer)
        near = min(n_peers, self._on_host - 1) * each * self._peer
        return float(near + at_once * self._sending * _SHARED_STEPS * chunk)


_CHANNELS = 20 // 2
_ON_MACHINE = 8  # NUM_MAX_NVL_PEERS
_BESIDES = 8 + 128 * 8 + 128 * 4 + 128 * 4  # of a token: where it comes from, experts, weights, scales
_CONTROL = 16
_WORKSPACE = 32 * 2**20
_NVSHMEM = 512 * 2**20
# The tokens of a ring on a machine, and of one over a network (a multiple of those that are sent at once), by ranks.
_RANKS = (8, 16, 24, 32, 64, 128, 144)
_TOKENS = ((256, 0), (288, 140), (288, 128), (288, 128), (288, 140), (560, 132), (720, 132))


def deep_ep_bytes(n_ranks: int, hidden: int) -> float:
    """Return the bytes on each of *n_ranks* GPUs that exchange tokens of *hidden* numbers in 16 bits."""
    inside, across = _TOKENS[min(bisect_left(_RANKS, n_ranks), len(_RANKS) - 1)]
    token = 2 * hidden + _BESIDES
    machines, near = max(1, n_ranks // _ON_MACHINE), min(n_ranks, _ON_MACHINE)
    found = _CHANNELS * near * (inside * token + (2 * machines + 3) * 4) + _WORKSPACE
    if n_ranks <= _ON_MACHINE:
        return float(found)
    rings = _CHANNELS * machines * 2 * (across * (token + _CONTROL) + (2 * _ON_MACHINE + 2) * 4)
    return float(found + -(-rings // _NVSHMEM) * _NVSHMEM)
