"""A GPU's memory that NCCL takes for a communicator, and DeepEP for experts (docs/decisions/collectives.md)."""

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
